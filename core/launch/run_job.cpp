#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "core/launch/launcher.h"
#include "core/launch/rank_environment.h"
#include "core/launch/session.h"

namespace dtorch {
namespace {

/** The spec as an inherited file of no name; every rank maps the same one. */
Fd spec_file(const std::string& text) {
  Fd file(::memfd_create("dtorch-spec", MFD_CLOEXEC));
  if (!file.valid()) throw Error(ErrorKind::os_resource, errno_text("memfd_create", errno));
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file.get(), text.data() + done, text.size() - done);
    if (n < 0) throw Error(ErrorKind::os_resource, errno_text("cannot hand the spec to the ranks", errno));
    done += static_cast<std::size_t>(n);
  }
  return file;
}

class Job {
 public:
  Job(const RunOptions& options, JobObserver& observer)
      : options_(options), observer_(observer), session_({options.executable, "", true, options.shutdown_timeout}, observer) {}

  JobOutcome run() {
    try {
      set_up();
      if (!options_.dry_run) {
        session_.supervisor().tell_all({{"type", "start"}});
        while (!session_.supervisor().all_ended()) session_.pump(Deadline::after(std::chrono::seconds(1)));
      }
    } catch (const JobEnded&) {
      while (!session_.supervisor().all_ended()) session_.supervisor().pump(Deadline::after(std::chrono::seconds(1)));
    } catch (const Error& error) {
      JobOutcome outcome;
      outcome.failure = failure_of(error);
      session_.supervisor().finish();
      return outcome;
    }
    return session_.supervisor().finish();
  }

 private:
  bool has_store() const { return options_.init_method.rfind("tcp://", 0) == 0; }

  void set_up() {
    if (has_store() && options_.node_rank == 0) {
      endpoint_ = parse_endpoint(options_.init_method);
      session_.listen(endpoint_);
      endpoint_.port = session_.store_port();
    }
    session_.start_agent();
    if (!options_.dry_run) start_ranks();  // they load libtorch while the agent checks, and wait for its result
    session_.serve_store();
    const auto answer =
        session_.call({{"type", "preflight"}, {"spec", options_.spec_yaml}}, options_.init_timeout, "the pre-flight check");
    observer_.plan(answer.value("plan", nlohmann::json::object()));
  }

  void start_ranks() {
    const Fd spec = spec_file(options_.spec_yaml);
    const auto& nodes = options_.ranks_per_node;
    const auto here = nodes.begin() + options_.node_rank;
    make_log_folder(options_.log_dir);
    RankPlace place;
    place.world_size = std::accumulate(nodes.begin(), nodes.end(), 0);
    place.local_world_size = *here;
    place.node_rank = options_.node_rank;
    place.nnodes = static_cast<int>(nodes.size());
    place.run_id = session_.tag();
    place.threads = options_.threads;
    place.job_tag = session_.tag();
    if (has_store()) {
      place.master_address = endpoint_.host;
      place.master_port = endpoint_.port;
    }
    const int first = std::accumulate(nodes.begin(), here, 0);
    for (int local = 0; local < place.local_world_size; ++local) {
      place.local_rank = local;
      place.rank = first + local;
      start_rank(place, spec.get());
    }
  }

  void start_rank(const RankPlace& place, int spec_fd) {
    RankStart start;
    start.rank = place.rank;
    start.local_rank = place.local_rank;
    start.control_option = "--control-fd";
    start.process.program = options_.executable;
    start.process.arguments = {options_.executable, "__rank", "--spec-fd", std::to_string(spec_fd)};
    if (!options_.losses_file.empty()) {
      start.process.arguments.insert(start.process.arguments.end(), {"--losses", options_.losses_file});
    }
    start.process.environment = rank_environment(place);
    start.process.inherit = {spec_fd};
    if (options_.bind_cores) start.process.cores = cores_of(place.local_rank, place.local_world_size);
    if (!options_.log_dir.empty()) start.log_file = fmt::format("{}/rank{}.log", options_.log_dir, place.rank);
    session_.supervisor().start(std::move(start));
  }

  const RunOptions& options_;
  JobObserver& observer_;
  Endpoint endpoint_;
  Session session_;
};

}  // namespace

JobOutcome run_job(const RunOptions& options, JobObserver& observer) {
  try {
    return Job(options, observer).run();
  } catch (const Error& error) {
    JobOutcome outcome;
    outcome.failure = failure_of(error);
    return outcome;
  }
}

}  // namespace dtorch
