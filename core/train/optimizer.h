// From the spec's `loss` and `optimizer` sections to what a training step calls.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/job/spec.h"

namespace at {
class Tensor;
}
namespace torch::optim {
class Optimizer;
}

namespace dtorch {

/** (scores float32 [b, classes], targets int64 [b]) → the batch's mean loss, a scalar with a gradient. */
using Loss = std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& targets)>;

/** Throws Error(spec) for a type it does not know. */
Loss build_loss(const LossSpec& spec);

/**
 * The optimizer over these parameters, with the numbers of Python's torch.optim, bit for bit. Throws
 * Error(spec) for a type it does not know and for settings that contradict each other.
 */
std::unique_ptr<torch::optim::Optimizer> build_optimizer(const OptimizerSpec& spec,
                                                         std::vector<at::Tensor> parameters);

}  // namespace dtorch
