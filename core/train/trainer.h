// One rank's training of a job spec, from a connected group to the result.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/messages.h"
#include "core/comm/process_group.h"
#include "core/data/dataset.h"
#include "core/job/spec.h"

namespace dtorch {

/** Where a rank's records go. Called on the training thread. Implementations: the control channel, the losses
 * file. */
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  /** "training", "evaluating", "done". */
  virtual void phase(const std::string& phase) = 0;
  virtual void step(const StepRecord&) = 0;
  /** Every step's exact loss; cheap. */
  virtual void loss(double loss) = 0;
  /** Rank 0 only, as eval and result. */
  virtual void epoch(const EpochRecord&) = 0;
  virtual void eval(const EvalRecord&) = 0;
  virtual void result(const ResultRecord&) = 0;
};

struct TrainerControl {
  const std::atomic<bool>* stop_requested =
      nullptr;                                ///< set asynchronously; ranks agree on the step to stop after
  std::atomic<std::int64_t>* step = nullptr;  ///< steps done, published for failure reports
  StorePtr store;                             ///< what the ranks agree through
};

/** A job's data in memory. */
struct TrainingData {
  DatasetInfo info;
  std::shared_ptr<const ImageDataset> train;
  std::shared_ptr<const ImageDataset> test;
};

/** The spec's dataset section as core/data takes it. */
DatasetSource dataset_source(const DatasetSpec& spec);

/** Finds (downloads where allowed) and reads both splits; CHECK, which may throw, sees what was found before anything
 * large is read. Throws Error(data, lost, spec). */
TrainingData load_training_data(const JobSpec& spec, const std::function<void(const DatasetInfo&)>& check);

/**
 * Trains to the end: builds model, loss and optimizer from the spec, wraps the model in
 * DistributedDataParallel, runs epochs and evaluations. Returns the result (equal on all ranks). Throws
 * Error: training (NaN loss, naming rank and step), disagree (ranks hold different data), interrupted (after
 * an agreed stop), and whatever data or the group throw. Seeds the default generator and sets libtorch's
 * number of threads (OMP_NUM_THREADS).
 */
ResultRecord train(const JobSpec& spec, const TrainingData& data, const ProcessGroupPtr& group,
                   MetricsSink& sink, const TrainerControl& control);

}  // namespace dtorch
