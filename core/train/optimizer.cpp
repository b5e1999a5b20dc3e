#include "core/train/optimizer.h"

#include <fmt/format.h>
#include <torch/optim/sgd.h>

#include "core/base/error.h"

namespace dtorch {

Loss build_loss(const LossSpec& spec) {
  if (spec.type != "cross_entropy") {
    throw Error(ErrorKind::spec, fmt::format("loss.type: '{}' is not a known loss", spec.type),
                "known losses: cross_entropy");
  }
  return [](const at::Tensor& scores, const at::Tensor& targets) {
    return at::cross_entropy_loss(scores, targets);
  };
}

std::unique_ptr<torch::optim::Optimizer> build_optimizer(const OptimizerSpec& spec,
                                                         std::vector<at::Tensor> parameters) {
  if (spec.type != "sgd") {
    throw Error(ErrorKind::spec, fmt::format("optimizer.type: '{}' is not a known optimizer", spec.type),
                "known optimizers: sgd");
  }
  if (spec.nesterov && (spec.momentum <= 0 || spec.dampening != 0)) {
    throw Error(
        ErrorKind::spec,
        fmt::format(
            "optimizer.nesterov: needs a momentum above 0 and no dampening, got momentum {} and dampening {}",
            spec.momentum, spec.dampening),
        "set optimizer.momentum, for example to 0.9");
  }
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(spec.lr)
                                                                        .momentum(spec.momentum)
                                                                        .dampening(spec.dampening)
                                                                        .weight_decay(spec.weight_decay)
                                                                        .nesterov(spec.nesterov));
}

}  // namespace dtorch
