#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "core/base/host.h"
#include "core/base/json_text.h"
#include "core/launch/launcher.h"
#include "core/launch/node_link.h"
#include "core/launch/rank_environment.h"
#include "core/launch/session.h"

namespace dtorch {
namespace {

constexpr int kMostUnchecked = 64;  // ranks that are started before the pre-flight has answered

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

/** The first line in which two texts differ: its number, and both. */
struct Difference {
  int line = 1;
  std::string there, here;
};

Difference first_difference(const std::string& theirs, const std::string& ours) {
  std::istringstream left(theirs), right(ours);
  for (Difference found; true; ++found.line) {
    const bool more_left = static_cast<bool>(std::getline(left, found.there));
    const bool more_right = static_cast<bool>(std::getline(right, found.here));
    if (!more_left) found.there = "(end)";
    if (!more_right) found.here = "(end)";
    if (found.there != found.here || (!more_left && !more_right)) return found;
  }
}

class Job {
 public:
  Job(const RunOptions& options, JobObserver& observer)
      : options_(options),
        observer_(observer),
        session_({options.executable, false, true, options.shutdown_timeout, options.collective_timeout},
                 observer),
        link_(session_, observer, options.rendezvous_timeout) {}

  JobOutcome run() {
    return link_.run_to_the_end([this] {
      set_up();
      if (options_.dry_run) return;
      link_.gather();
      link_.begin_attempt(0);
      session_.supervisor().tell_all({{"type", "start"}});
      while (!session_.supervisor().over()) session_.pump(Deadline::after(std::chrono::seconds(1)));
      if (!session_.supervisor().cause()) link_.finish_attempt();
    });
  }

 private:
  bool has_store() const { return options_.init_method.rfind("tcp://", 0) == 0; }
  int nnodes() const { return static_cast<int>(options_.ranks_per_node.size()); }

  void set_up() {
    if (!options_.join_endpoint.empty()) {
      join();
    } else {
      open_store();
      if (nnodes() > 1 && !options_.dry_run) meet();
    }
    if (run_id_.empty()) run_id_ = session_.tag();
    const auto here = static_cast<std::size_t>(options_.node_rank);
    // Ranks load libtorch while the agent checks, and wait for its result; so many that they might not fit, only then.
    const bool early = options_.ranks_per_node.at(here) <= kMostUnchecked;
    if (!options_.dry_run && early) start_ranks();
    const auto answer = session_.call({{"type", options_.bench ? "bench_preflight" : "preflight"},
                                       {"spec", options_.spec_yaml},
                                       {"places", options_.places},
                                       {"local_ranks", options_.ranks_per_node.at(here)}},
                                      options_.init_timeout, "the pre-flight check");
    observer_.plan(answer.value("plan", nlohmann::json::object()));
    if (!options_.dry_run && !early) start_ranks();
  }

  void open_store() {
    if (has_store()) endpoint_ = parse_endpoint(options_.init_method);
    if (has_store() && nnodes() > 1 && endpoint_.port == 0) {
      throw Error(ErrorKind::spec,
                  "port 0 means any free port, but several nodes need one that all of them know",
                  "name a port: -s init_method=tcp://HOST:29500");
    }
    const bool serves = has_store() && options_.node_rank == 0 && !options_.dry_run;
    if (serves) session_.listen(endpoint_);
    if (serves) endpoint_.port = session_.store_port();
    session_.start_agent();
    if (serves) session_.serve_store();
    if (serves) link_.serve_at(endpoint_);
    if (options_.dry_run || nnodes() == 1) return;
    if (!has_store()) {
      link_.connect(options_.init_method);
    } else if (!serves) {
      link_.connect(endpoint_);
    }
  }

  /** Several nodes of one `dtorch run`: the same spec on all of them, and node ranks of their own. */
  void meet() {
    link_.begin(options_.node_rank, nnodes());
    const Terms terms{{"ranks per node", json_text(options_.ranks_per_node)}};
    if (options_.node_rank == 0) {
      run_id_ = "nodes." + session_.tag();
      link_.offer({options_.spec_yaml, options_.ranks_per_node, terms, run_id_});
    } else {
      const auto job = link_.fetch_job();
      run_id_ = job.run_id;
      if (job.spec != options_.spec_yaml) refuse_spec(first_difference(job.spec, options_.spec_yaml));
      link_.compare(job.terms, terms);
    }
    link_.claim(options_.node_rank, options_.ranks_per_node[static_cast<std::size_t>(options_.node_rank)]);
  }

  [[noreturn]] void refuse_spec(const Difference& found) {
    const auto [first, self] = link_.both_names();
    throw Error(ErrorKind::disagree,
                fmt::format("the nodes have different specs: line {} is '{}' on {}, '{}' on {}", found.line,
                            found.there, first, found.here, self),
                "start all nodes with the same spec and the same overrides");
  }

  /** `dtorch join`: the spec comes from node 0, the node rank is the first one that is free and fits. */
  void join() {
    endpoint_ = parse_endpoint(options_.join_endpoint);
    session_.start_agent();
    link_.connect(endpoint_);
    const auto job = link_.fetch_job();
    if (job.nodes.empty()) {
      throw Error(ErrorKind::disagree,
                  fmt::format("no job to join waits at {}, but dtorch launch", to_string(endpoint_)),
                  "start dtorch launch there and here");
    }
    options_.spec_yaml = job.spec;
    options_.ranks_per_node = job.nodes;
    run_id_ = job.run_id;
    link_.begin(-1, nnodes());
    options_.accept(options_);
    session_.supervisor().set_grace(options_.shutdown_timeout);
    session_.supervisor().set_stall_limit(options_.collective_timeout);
    for (int node = 1; node < nnodes(); ++node) {
      const int ranks = options_.ranks_per_node[static_cast<std::size_t>(node)];
      if ((options_.join_slots != 0 && ranks > options_.join_slots) || !link_.try_claim(node, ranks))
        continue;
      options_.node_rank = node;
      observer_.log(-1, "info",
                    fmt::format("joined {} as node {} of {} with {} ranks", to_string(endpoint_), node,
                                nnodes(), ranks));
      return;
    }
    link_.withdraw();  // another machine may have what the job wants
    throw Error(
        ErrorKind::disagree,
        fmt::format("the job at {} has no free node left that {} slots can fill", to_string(endpoint_),
                    options_.join_slots == 0 ? "any number of" : std::to_string(options_.join_slots)),
        "its ranks per node: " + json_text(job.nodes));
  }

  void start_ranks() {
    const Fd spec = spec_file(options_.spec_yaml);
    const auto& nodes = options_.ranks_per_node;
    const auto here = nodes.begin() + options_.node_rank;
    make_folder(options_.log_dir);
    RankPlace place;
    place.world_size = std::accumulate(nodes.begin(), nodes.end(), 0);
    place.local_world_size = *here;
    place.node_rank = options_.node_rank;
    place.nnodes = static_cast<int>(nodes.size());
    place.run_id = run_id_;
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
    start.control_option = "--control-fd";
    start.process.program = options_.executable;
    start.process.arguments = {options_.executable, "__rank", "--spec-fd", std::to_string(spec_fd)};
    if (options_.bench) start.process.arguments.emplace_back("--bench");
    if (!options_.losses_file.empty()) {
      start.process.arguments.insert(start.process.arguments.end(), {"--losses", options_.losses_file});
    }
    start.process.environment = rank_environment(place);
    start.process.inherit = {spec_fd};
    if (options_.bind_cores) start.process.cores = cores_of(place.local_rank, place.local_world_size);
    if (!options_.log_dir.empty())
      start.log_file = fmt::format("{}/rank{}.log", options_.log_dir, place.rank);
    session_.supervisor().start(std::move(start));
  }

  RunOptions options_;
  JobObserver& observer_;
  Endpoint endpoint_;
  std::string run_id_;
  Session session_;
  NodeLink link_;
};

}  // namespace

JobOutcome run_job(const RunOptions& options, JobObserver& observer) {
  try {
    return Job(options, observer).run();
  } catch (const Error& error) {
    JobOutcome outcome;
    outcome.failure = to_failure(error, host_name());
    return outcome;
  }
}

}  // namespace dtorch
