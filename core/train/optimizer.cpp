#include "core/train/optimizer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/train/sgd.h"

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

std::unique_ptr<Optimizer> build_optimizer(const OptimizerSpec& spec,
                                           const std::vector<at::Tensor>& parameters) {
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
  return make_sgd(spec, parameters);
}

}  // namespace dtorch
