// Stochastic gradient descent in one pass over memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "core/job/spec.h"
#include "core/train/optimizer.h"

namespace dtorch {

/**
 * torch.optim.SGD(parameters, lr, momentum, dampening, weight_decay, nesterov) with the bits of Python's, but
 * each element is read and written once a step. Parameters are float32 or float64. Throws Error(usage) for a
 * parameter whose memory has gaps or repeats.
 */
std::unique_ptr<Optimizer> make_sgd(const OptimizerSpec& spec, const std::vector<at::Tensor>& parameters);

}  // namespace dtorch
