// One rank's training of a job spec, from a connected group to the result.
#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "core/base/messages.h"
#include "core/comm/process_group.h"
#include "core/job/spec.h"

namespace dtorch {

/** Where a rank's records go. Called on the training thread. Implementations: the control channel, the losses file. */
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void step(const StepRecord&) = 0;
  /** Every step's exact loss; cheap. */
  virtual void loss(double loss) = 0;
  virtual void epoch(const EpochRecord&) = 0;
  virtual void eval(const EvalRecord&) = 0;
  virtual void result(const ResultRecord&) = 0;
};

struct TrainerControl {
  std::atomic<bool>* stop_requested = nullptr;     ///< set asynchronously; ranks agree on the step to stop after
  std::atomic<std::int64_t>* step = nullptr;       ///< published for failure reports
};

/**
 * Trains to the end: builds model, loss, optimizer and data from the spec, wraps the model in DistributedDataParallel,
 * runs epochs and evaluations. Returns the result (equal on all ranks). Throws Error: training (NaN loss, naming rank and
 * step), interrupted (after an agreed stop), and whatever data or the group throw.
 */
ResultRecord train(const JobSpec& spec, const ProcessGroupPtr& group, MetricsSink& sink, const TrainerControl& control);

}  // namespace dtorch
