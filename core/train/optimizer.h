// From the spec's `loss` and `optimizer` sections to what a training step calls.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/job/spec.h"

namespace at {
class Tensor;
}

namespace dtorch {

/** (scores float32 [b, classes], targets int64 [b]) → the batch's mean loss, a scalar with a gradient. */
using Loss = std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& targets)>;

/** Throws Error(spec) for a type it does not know. */
Loss build_loss(const LossSpec& spec);

/** Moves parameters along their gradients. Call from one thread. */
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /** One step for every parameter that has a gradient; the others, and the gradients, stay as they are. */
  virtual void step() = 0;
};

/**
 * The optimizer over these parameters, with the numbers of Python's torch.optim, bit for bit. Throws
 * Error(spec) for a type it does not know and for settings that contradict each other.
 */
std::unique_ptr<Optimizer> build_optimizer(const OptimizerSpec& spec,
                                           const std::vector<at::Tensor>& parameters);

}  // namespace dtorch
