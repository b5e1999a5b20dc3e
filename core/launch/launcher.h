// Runs the local ranks of a job and reports what becomes of it.
#pragma once
#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bench_messages.h"
#include "core/base/error.h"
#include "core/base/messages.h"

namespace dtorch {

/** What a launcher tells while a job runs; not every kind of job has all of it. Called on the launcher's thread, never after run() returned. */
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void plan(const nlohmann::json& /*plan*/) {}  ///< pre-flight's result; see core/engine's preflight
  virtual void phase(int /*rank*/, const std::string& /*phase*/) {}  ///< joining, training, evaluating, done
  virtual void step(const StepRecord&) {}
  virtual void epoch(const EpochRecord&) {}
  virtual void eval(const EvalRecord&) {}
  virtual void result(const ResultRecord&) {}
  virtual void bench_start(const BenchStart&) {}
  virtual void bench_row(const BenchRow&) {}
  virtual void log(int rank, const std::string& level,
                   const std::string& text) = 0;                               ///< rank -1: launcher or agent
  virtual void output(int rank, bool is_stderr, const std::string& line) = 0;  ///< what a rank printed itself
  virtual void tick() {}  ///< about ten times a second, for redrawing
  /** Whether what ranks print had better stay with them: they wait in their writes, as for any reader that pauses. */
  virtual bool congested() const { return false; }
};

/** The first cause of a job's end and the tail of that rank's output. */
struct JobOutcome {
  std::optional<Failure> failure;  ///< nothing: the job is done
  std::vector<std::string> tail;   ///< last lines the failing rank printed
  int program_code = 0;            ///< launch: the first failing program's own code (128 + signal)
};

struct RunOptions {
  std::string executable;           ///< to exec as `EXE __rank` and `EXE __agent`
  std::string spec_yaml;            ///< canonical; with `bench` a BenchRequest as JSON
  bool bench = false;               ///< the ranks time collectives instead of training
  std::string places;               ///< where its values stand, for the pre-flight's messages; may be empty
  std::string init_method;          ///< of the spec; the store's endpoint where it is tcp://
  std::vector<int> ranks_per_node;  ///< one entry a node
  int node_rank = 0;
  bool dry_run = false;  ///< only the plan
  std::string losses_file;
  std::string log_dir;        ///< a file a rank instead of prefixed lines; empty: none
  bool bind_cores = false;    ///< pin each rank to its share of the cores
  int threads = 0;            ///< OMP_NUM_THREADS; 0: cores / local ranks
  std::string join_endpoint;  ///< `dtorch join`: where node 0 is; spec, nodes and node rank come from there
  int join_slots = 0;         ///< how many ranks this machine takes at most; 0: any number
  /** `dtorch join`: called with the spec and the nodes filled in; fills in the rest, or refuses by throwing. */
  std::function<void(RunOptions&)> accept;
  std::chrono::milliseconds rendezvous_timeout{300'000};  ///< until all nodes have come
  std::chrono::milliseconds init_timeout{300'000};        ///< the longest silence of the pre-flight
  std::chrono::milliseconds collective_timeout{
      1'800'000};                                     ///< how long a process may stand stopped (kill -STOP)
  std::chrono::milliseconds shutdown_timeout{5'000};  ///< from a stop request until ranks are killed
};

/**
 * `dtorch run`: spawns the local ranks, watches them to the end, ends them all on the first failure. Blocks. Call it on the
 * main thread of a process that has no other. Never throws an Error: what goes wrong is in the outcome.
 */
JobOutcome run_job(const RunOptions& options, JobObserver& observer);

struct LaunchOptions {
  std::string executable;            ///< to exec as `EXE __agent`
  std::vector<std::string> program;  ///< argv
  int local_ranks = 1;
  int nnodes = 1;
  int node_rank = 0;
  std::string master_address = "127.0.0.1";
  int master_port = 0;  ///< 0: any free one (one node only)
  std::string run_id;   ///< TORCHELASTIC_RUN_ID; empty: made up
  int max_restarts = 0;
  std::string log_dir;  ///< a file a rank; empty: none
  bool bind_cores = false;
  std::chrono::milliseconds rendezvous_timeout{300'000};
  std::chrono::milliseconds grace{5'000};  ///< from a stop request until the programs are killed
};

/** `dtorch launch`: any program once a rank, with torchrun's environment. Like run_job otherwise. */
JobOutcome launch_program(const LaunchOptions& options, JobObserver& observer);

}  // namespace dtorch
