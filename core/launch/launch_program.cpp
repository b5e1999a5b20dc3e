#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "core/base/host.h"
#include "core/launch/launcher.h"
#include "core/launch/node_link.h"
#include "core/launch/rank_environment.h"
#include "core/launch/session.h"

namespace dtorch {
namespace {

/** The agent loads libtorch when a rank connects, or after this long: short programs need not pay for it. */
constexpr std::chrono::milliseconds kServeAfter(300);

class Programs {
 public:
  Programs(const LaunchOptions& options, JobObserver& observer)
      : options_(options),
        observer_(observer),
        session_({options.executable, true, false, options.grace}, observer),
        link_(session_, options.rendezvous_timeout) {}

  JobOutcome run() {
    const auto program = find_program(options_.program.front());
    if (!program) return not_found();
    program_ = *program;
    try {
      open_store();
    } catch (const JobEnded&) {
      return session_.supervisor().finish();
    }
    for (int attempt = 0;; ++attempt) {
      JobOutcome outcome = run_attempt(attempt);
      const bool asked = session_.supervisor().stop_signal() != 0;
      if (!outcome.failure || asked || attempt == options_.max_restarts) return outcome;
      observer_.log(
          -1, "warning",
          fmt::format("{}; restart {} of {}", outcome.failure->message, attempt + 1, options_.max_restarts));
      session_.begin_attempt();
    }
  }

 private:
  JobOutcome not_found() const {
    JobOutcome outcome;
    outcome.failure = Failure();
    outcome.failure->kind = ErrorKind::usage;
    outcome.failure->message = fmt::format("cannot run '{}': no such program", options_.program.front());
    outcome.failure->host = host_name();
    outcome.program_code = 127;  // as a shell, env and timeout say it
    return outcome;
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
      session_.start_agent();
      if (options_.nnodes > 1) session_.serve_store();
    }
    if (options_.nnodes > 1 && !link_.claim(options_.node_rank)) {
      throw Error(ErrorKind::disagree,
                  fmt::format("node rank {} is already taken by {}", options_.node_rank,
                              link_.holder(options_.node_rank)),
                  "give each machine a --node-rank of its own");
    }
  }

  JobOutcome run_attempt(int attempt) {
    return link_.run_to_the_end([&] {
      link_.begin_attempt(attempt, options_.node_rank, options_.nnodes);
      start_ranks(attempt);
      const Deadline serve = Deadline::after(kServeAfter);
      while (!session_.supervisor().over()) {
        if (serve.expired() || session_.store_wanted()) session_.serve_store();
        session_.pump(session_.serving() ? Deadline::after(std::chrono::seconds(1)) : serve);
      }
      if (!session_.supervisor().cause()) link_.leave(/*well=*/true);
    });
  }

  void start_ranks(int attempt) {
    RankPlace place;
    place.world_size = options_.local_ranks * options_.nnodes;
    place.local_world_size = options_.local_ranks;
    place.node_rank = options_.node_rank;
    place.nnodes = options_.nnodes;
    place.master_address = options_.master_address;
    place.master_port = port_;
    place.run_id = options_.run_id.empty() ? session_.tag() : options_.run_id;
    place.restart_count = attempt;
    place.max_restarts = options_.max_restarts;
    place.job_tag = session_.tag();
    for (int local = 0; local < options_.local_ranks; ++local) {
      place.local_rank = local;
      place.rank = options_.node_rank * options_.local_ranks + local;
      place.error_file = fmt::format("{}/error.{}.{}", session_.scratch(), attempt, place.rank);
      start_rank(place);
    }
  }

  void start_rank(const RankPlace& place) {
    RankStart start;
    start.rank = place.rank;
    start.local_rank = place.local_rank;
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
    session_.supervisor().start(std::move(start));
  }

  const LaunchOptions& options_;
  JobObserver& observer_;
  std::string program_;
  int port_ = 0;
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
    outcome.failure = failure_of(error);
    return outcome;
  }
}

}  // namespace dtorch
