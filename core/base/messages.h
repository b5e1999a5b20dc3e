// What travels on the control channels, as plain structs with their JSON form. Every message is an object with a "type".
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace dtorch {

/** rank → launcher, type "step": how training goes, at most ten times a second and once at each epoch's end. */
struct StepRecord {
  int rank = 0;
  std::string host;
  std::string device;  ///< "cpu", "cuda:0"
  int epoch = 0;       ///< from 0
  int epochs = 0;
  std::int64_t step = 0;        ///< steps done since the start of training
  std::int64_t epoch_step = 0;  ///< steps done in this epoch
  std::int64_t steps_per_epoch = 0;
  double loss = 0;                 ///< this rank's loss at the last step
  double samples_per_s = 0;        ///< of this rank, since the previous record
  double step_ms = 0;              ///< mean wall time of a step since the previous record
  double compute_ms = 0;           ///< the part of step_ms that is neither communication nor data wait
  double comm_share = 0;           ///< share of step_ms spent waiting in communication, 0 to 1
  double data_share = 0;           ///< share of step_ms spent waiting for data, 0 to 1
  std::uint64_t memory_bytes = 0;  ///< resident memory of the rank
};

/** rank 0 → launcher, type "epoch": the job-wide figures of an epoch. */
struct EpochRecord {
  int epoch = 0;
  double loss = 0;           ///< mean training loss of the epoch over all ranks and samples
  double samples_per_s = 0;  ///< all ranks together
  double seconds = 0;
};

/** rank 0 → launcher, type "eval": an evaluation, exact over the whole test set. */
struct EvalRecord {
  int epoch = 0;
  double loss = 0;
  double accuracy = 0;  ///< 0 to 1
  std::int64_t samples = 0;
  double seconds = 0;
};

/** rank 0 → launcher, type "result": how the job ended. */
struct ResultRecord {
  double test_accuracy = 0;
  double loss = 0;           ///< mean training loss of the last epoch
  double samples_per_s = 0;  ///< training only, all ranks together
  double seconds = 0;        ///< training and evaluation
  int world_size = 0;
  std::string backend;  ///< the one really used
  std::string dataset;  ///< the one really used, "fashion_mnist" after a fallback
  std::int64_t steps = 0;
  int epochs = 0;
};

/** any → launcher, type "failure": the first thing that went wrong in a process, with all that is known about where. */
struct Failure {
  ErrorKind kind = ErrorKind::training;
  std::string message;
  std::string help;
  int rank = -1;  ///< -1: not a rank (the launcher, the agent)
  std::string host;
  std::int64_t step = -1;          ///< training step, -1 before the first
  std::string collective;          ///< "all_reduce #42 float32[407050]", empty outside collectives
  int signal = 0;                  ///< the signal that ended the process, 0 if none
  int exit_code = -1;              ///< the process's own code, -1 if it did not exit
  std::vector<int> missing_ranks;  ///< ranks that did not come, for timeouts
  bool consequence =
      false;  ///< true: this rank failed only because another did ("connection closed by peer")
};

/** The Failure that reports an Error found on `host`; where else it happened is for the caller to add. */
Failure to_failure(const Error& error, std::string host = {});

void to_json(nlohmann::json& json, const StepRecord& record);
void from_json(const nlohmann::json& json, StepRecord& record);
void to_json(nlohmann::json& json, const EpochRecord& record);
void from_json(const nlohmann::json& json, EpochRecord& record);
void to_json(nlohmann::json& json, const EvalRecord& record);
void from_json(const nlohmann::json& json, EvalRecord& record);
void to_json(nlohmann::json& json, const ResultRecord& record);
void from_json(const nlohmann::json& json, ResultRecord& record);
void to_json(nlohmann::json& json, const Failure& failure);
void from_json(const nlohmann::json& json, Failure& failure);

// The other messages have no struct:
//   rank → launcher   {"type":"log","level":"info","text":...}   {"type":"phase","phase":"joining|training|evaluating|done"}
//                     {"type":"ring","rank":r,"ring":[...],"stack":[...]}   answer to "dump"
//   launcher → rank   {"type":"stop"}    finish the step on all ranks, then end (Ctrl-C, SIGTERM)
//                     {"type":"abort","reason":...}   another rank failed: abort every process group, end at once
//                     {"type":"dump"}    tell what the rank is doing: collective ring and stack of its main thread

}  // namespace dtorch
