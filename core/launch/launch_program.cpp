#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/host.h"
#include "core/launch/launcher.h"
#include "core/launch/node_link.h"
#include "core/launch/rank_environment.h"
#include "core/launch/session.h"

namespace dtorch {
namespace {

/** The agent loads libtorch when a rank connects, or after this long: short programs need not pay for it. */
constexpr std::chrono::milliseconds kServeAfter(300);

/** Before the first restart; doubled for each further one, up to the second. */
constexpr std::chrono::milliseconds kFirstBackOff(100);
constexpr std::chrono::milliseconds kLongestBackOff(10'000);

std::chrono::milliseconds back_off(int attempt) {
  return std::min(kLongestBackOff, kFirstBackOff * (1 << std::min(attempt - 1, 10)));
}

class Programs {
 public:
  Programs(const LaunchOptions& options, JobObserver& observer)
      : options_(options),
        observer_(observer),
        session_({options.executable, true, false, options.grace}, observer),
        link_(session_, observer, options.rendezvous_timeout) {}

  JobOutcome run() {
    for (int attempt = 0;; ++attempt) {
      JobOutcome outcome = link_.run_to_the_end([&] {
        attempt == 0 ? set_up() : wait_before(attempt);
        run_attempt(attempt);
      });
      const bool asked = session_.supervisor().stop_signal() != 0;
      const bool last = !ready_ || refused_ || link_.node_is_gone() || attempt == options_.max_restarts;
      if (!outcome.failure || asked || last) return outcome;
      observer_.log(
          -1, "warning",
          fmt::format("{}; restart {} of {} in {} s", outcome.failure->message, attempt + 1,
                      options_.max_restarts, std::chrono::duration<double>(back_off(attempt + 1)).count()));
      session_.begin_attempt();
    }
  }

 private:
  void find() {
    const ProgramPath found = look_up_program(options_.program.front());
    program_ = found.path;
    if (found.code == 0) return;
    refuse_program(
        Error(ErrorKind::usage, fmt::format("cannot run '{}': {}", options_.program.front(), found.problem)),
        found.code);
  }

  /** `code`: as a shell, env and timeout say it. */
  [[noreturn]] void refuse_program(const Error& error, int code) {
    Failure failure = to_failure(error, host_name());
    failure.exit_code = code;
    refused_ = options_.nnodes == 1;  // of several nodes each would have to know
    session_.supervisor().fail(failure);
    throw JobEnded();
  }

  void set_up() {
    if (options_.nnodes == 1) {
      find();
      open_store();
      ranks_before_ = 0;
      world_size_ = options_.local_ranks;
    } else {
      open_store();
      meet();
    }
    if (run_id_.empty()) run_id_ = options_.run_id.empty() ? session_.tag() : options_.run_id;
    observer_.plan({{"first_rank", ranks_before_}, {"world_size", world_size_}});
    ready_ = true;
  }

  void open_store() {
    const Endpoint endpoint{options_.master_address, options_.master_port};
    if (options_.node_rank != 0) {
      session_.start_agent();
      port_ = endpoint.port;
      link_.connect(endpoint);
    } else {
      session_.listen(endpoint);
      port_ = session_.store_port();
      link_.serve_at({endpoint.host, port_});
      session_.start_agent();
      if (options_.nnodes > 1) session_.serve_store();
    }
  }

  /** What must be the same on all nodes. Each may have ranks of its own number, as with torchrun. */
  Terms terms() const {
    return {{"--nnodes", std::to_string(options_.nnodes)},
            {"--max-restarts", std::to_string(options_.max_restarts)},
            {"the program", fmt::format("'{}'", fmt::join(options_.program, " "))}};
  }

  void meet() {
    const int node = options_.node_rank;
    link_.begin(node, options_.nnodes);
    if (node == 0) {
      // Not this node's tag alone: that marks a job of one node, whose ranks restart together with their store.
      run_id_ = options_.run_id.empty() ? "nodes." + session_.tag() : options_.run_id;
      link_.offer({{}, {}, terms(), run_id_});
      link_.claim(node, options_.local_ranks);
    } else {
      const auto job = link_.fetch_job();
      if (!job.nodes.empty()) {
        throw Error(ErrorKind::disagree, "a training job waits there, not dtorch launch",
                    "use dtorch join, or dtorch run");
      }
      run_id_ = job.run_id;
      link_.compare(job.terms, terms());
      if (!options_.run_id.empty()) link_.compare({{"--rdzv-id", run_id_}}, {{"--rdzv-id", options_.run_id}});
      link_.claim(node, options_.local_ranks);
    }
    find();
    link_.gather();
    const auto nodes = link_.nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (static_cast<int>(i) < node) ranks_before_ += nodes[i].ranks;
      world_size_ += nodes[i].ranks;
    }
  }

  void wait_before(int attempt) {
    const Deadline until = Deadline::after(back_off(attempt));
    while (!until.expired()) session_.pump(until);
  }

  void run_attempt(int attempt) {
    link_.begin_attempt(attempt);
    start_ranks(attempt);
    const Deadline serve = Deadline::after(kServeAfter);
    while (!session_.supervisor().over()) {
      if (serve.expired() || session_.store_wanted()) session_.serve_store();
      session_.pump(session_.serving() ? Deadline::after(std::chrono::seconds(1)) : serve);
    }
    if (!session_.supervisor().cause()) link_.finish_attempt();
  }

  void start_ranks(int attempt) {
    RankPlace place;
    place.world_size = world_size_;
    place.local_world_size = options_.local_ranks;
    place.node_rank = options_.node_rank;
    place.nnodes = options_.nnodes;
    place.master_address = options_.master_address;
    place.master_port = port_;
    place.run_id = run_id_;
    place.restart_count = attempt;
    place.max_restarts = options_.max_restarts;
    place.job_tag = session_.tag();
    for (int local = 0; local < options_.local_ranks; ++local) {
      place.local_rank = local;
      place.rank = ranks_before_ + local;
      place.error_file = fmt::format("{}/error.{}.{}", session_.scratch(), attempt, place.rank);
      start_rank(place);
    }
  }

  void start_rank(const RankPlace& place) {
    RankStart start;
    start.rank = place.rank;
    start.process.program = program_;
    start.process.arguments = options_.program;
    start.process.environment = rank_environment(place);
    start.error_file = place.error_file;
    if (options_.bind_cores) start.process.cores = cores_of(place.local_rank, place.local_world_size);
    if (!options_.log_dir.empty()) {
      const std::string attempt =
          place.restart_count == 0 ? "" : fmt::format(".restart{}", place.restart_count);
      start.log_file = fmt::format("{}/rank{}{}.log", options_.log_dir, place.rank, attempt);
    }
    try {
      session_.supervisor().start(std::move(start));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      refuse_program(error, 126);
    }
  }

  const LaunchOptions& options_;
  JobObserver& observer_;
  std::string program_;  ///< its path
  std::string run_id_;
  int port_ = 0;
  int ranks_before_ = 0;  ///< on nodes before this one
  int world_size_ = 0;
  bool ready_ = false;    ///< set-up is over: what fails now may be restarted
  bool refused_ = false;  ///< the program cannot be run, another time neither
  Session session_;
  NodeLink link_;
};

}  // namespace

JobOutcome launch_program(const LaunchOptions& options, JobObserver& observer) {
  try {
    make_folder(options.log_dir);
    return Programs(options, observer).run();
  } catch (const Error& error) {
    JobOutcome outcome;
    outcome.failure = to_failure(error, host_name());
    return outcome;
  }
}

}  // namespace dtorch
