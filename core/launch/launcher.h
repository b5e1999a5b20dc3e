// Runs the local ranks of a job and reports what becomes of it.
#pragma once
#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/messages.h"

namespace dtorch {

/** What a launcher tells while a job runs. Called on the launcher's thread, never after run() returned. */
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void plan(const nlohmann::json& plan) = 0;             ///< pre-flight's result; see core/engine's preflight
  virtual void phase(int rank, const std::string& phase) = 0;    ///< joining, training, evaluating, done
  virtual void step(const StepRecord&) = 0;
  virtual void epoch(const EpochRecord&) = 0;
  virtual void eval(const EvalRecord&) = 0;
  virtual void result(const ResultRecord&) = 0;
  virtual void log(int rank, const std::string& level, const std::string& text) = 0;   ///< rank -1: launcher or agent
  virtual void output(int rank, bool is_stderr, const std::string& line) = 0;          ///< what a rank printed itself
  virtual void tick() = 0;                                       ///< about ten times a second, for redrawing
};

/** The first cause of a job's end and the tail of that rank's output. */
struct JobOutcome {
  std::optional<Failure> failure;      ///< nothing: the job is done
  std::vector<std::string> tail;       ///< last lines the failing rank printed
  int program_code = 0;                ///< launch: the first failing program's own code (128 + signal)
};

struct RunOptions {
  std::string executable;              ///< to exec as `EXE __rank` and `EXE __agent`
  std::string spec_yaml;               ///< canonical
  int nnodes = 1;
  int node_rank = 0;
  bool dry_run = false;                ///< only the plan
  std::string losses_file;
  std::string log_dir;                 ///< a file a rank instead of prefixed lines; empty: none
};

/** `dtorch run`: spawns the local ranks, watches them to the end, ends them all on the first failure. Blocks. */
JobOutcome run_job(const RunOptions& options, JobObserver& observer);

}  // namespace dtorch
