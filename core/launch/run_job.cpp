#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

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

/** "3: lr: 0.1 | 3: lr: 0.2", the first line in which two texts differ. */
std::string first_difference(const std::string& theirs, const std::string& ours) {
  std::istringstream left(theirs), right(ours);
  std::string there, here;
  for (int line = 1; true; ++line) {
    const bool more_left = static_cast<bool>(std::getline(left, there));
    const bool more_right = static_cast<bool>(std::getline(right, here));
    if (!more_left) there = "(end)";
    if (!more_right) here = "(end)";
    if (there != here || (!more_left && !more_right))
      return fmt::format("line {}: '{}' there, '{}' here", line, there, here);
  }
}

class Job {
 public:
  Job(const RunOptions& options, JobObserver& observer)
      : options_(options),
        observer_(observer),
        session_({options.executable, false, true, options.shutdown_timeout, options.collective_timeout},
                 observer),
        link_(session_, options.rendezvous_timeout) {}

  JobOutcome run() {
    return link_.run_to_the_end([this] {
      set_up();
      if (options_.dry_run) return;
      session_.supervisor().tell_all({{"type", "start"}});
      while (!session_.supervisor().over()) session_.pump(Deadline::after(std::chrono::seconds(1)));
      if (!session_.supervisor().cause()) link_.leave(/*well=*/true);
    });
  }

 private:
  bool has_store() const { return options_.init_method.rfind("tcp://", 0) == 0; }
  int nnodes() const { return static_cast<int>(options_.ranks_per_node.size()); }

  void set_up() {
    if (!options_.join_endpoint.empty()) {
      join();
    } else if (!has_store()) {
      session_.start_agent();
    } else if (options_.node_rank == 0) {
      open_store();
    } else {
      meet_node_0();
    }
    if (has_store() && !options_.dry_run) link_.begin_attempt(0, options_.node_rank, nnodes());
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
    endpoint_ = parse_endpoint(options_.init_method);
    if (nnodes() > 1 && endpoint_.port == 0) {
      throw Error(ErrorKind::spec,
                  "port 0 means any free port, but several nodes need one that all of them know",
                  "name a port: -s init_method=tcp://HOST:29500");
    }
    if (options_.dry_run) return session_.start_agent();
    session_.listen(endpoint_);
    endpoint_.port = session_.store_port();
    session_.start_agent();
    session_.serve_store();
    if (nnodes() > 1) link_.offer({options_.spec_yaml, options_.ranks_per_node});
  }

  /** Another node of the same `dtorch run`: the same spec, and a node rank of its own. */
  void meet_node_0() {
    endpoint_ = parse_endpoint(options_.init_method);
    session_.start_agent();
    if (options_.dry_run) return;
    link_.connect(endpoint_);
    const auto job = link_.fetch_job();
    if (job.spec != options_.spec_yaml) {
      throw Error(
          ErrorKind::disagree,
          fmt::format("this spec is not node 0's: {}", first_difference(job.spec, options_.spec_yaml)),
          "start all nodes with the same spec and the same overrides");
    }
    if (job.nodes != options_.ranks_per_node) {
      throw Error(
          ErrorKind::disagree,
          fmt::format("node 0 counts ranks per node as {}, this node as {}", nlohmann::json(job.nodes).dump(),
                      nlohmann::json(options_.ranks_per_node).dump()),
          "start all nodes with the same --nnodes");
    }
    if (!link_.claim(options_.node_rank)) {
      throw Error(ErrorKind::disagree,
                  fmt::format("node rank {} is already taken by {}", options_.node_rank,
                              link_.holder(options_.node_rank)),
                  "give each machine a --node-rank of its own");
    }
  }

  /** `dtorch join`: the spec comes from node 0, the node rank is the first one that is free and fits. */
  void join() {
    endpoint_ = parse_endpoint(options_.join_endpoint);
    session_.start_agent();
    link_.connect(endpoint_);
    const auto job = link_.fetch_job();
    options_.spec_yaml = job.spec;
    options_.ranks_per_node = job.nodes;
    options_.accept(options_);
    session_.supervisor().set_grace(options_.shutdown_timeout);
    session_.supervisor().set_stall_limit(options_.collective_timeout);
    for (int node = 1; node < nnodes(); ++node) {
      const int ranks = options_.ranks_per_node[static_cast<std::size_t>(node)];
      if ((options_.join_slots != 0 && ranks > options_.join_slots) || !link_.claim(node)) continue;
      options_.node_rank = node;
      observer_.log(-1, "info",
                    fmt::format("joined {} as node {} of {} with {} ranks", to_string(endpoint_), node,
                                nnodes(), ranks));
      return;
    }
    throw Error(
        ErrorKind::disagree,
        fmt::format("the job at {} has no free node left that {} slots can fill", to_string(endpoint_),
                    options_.join_slots == 0 ? "any number of" : std::to_string(options_.join_slots)),
        "its ranks per node: " + nlohmann::json(job.nodes).dump());
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
  Session session_;
  NodeLink link_;
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
