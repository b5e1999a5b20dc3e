#include "core/train/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <numeric>

#include "core/base/error.h"

namespace dtorch {
namespace {

/** Linear layers fc1, fc2, ... with an activation between them; the input is flattened. */
class Mlp : public torch::nn::Module {
 public:
  Mlp(const std::vector<std::int64_t>& layers, bool relu) : relu_(relu) {
    for (std::size_t i = 1; i < layers.size(); ++i) {
      linears_.emplace_back(
          register_module(fmt::format("fc{}", i), torch::nn::Linear(layers[i - 1], layers[i])));
    }
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = input.flatten(1);
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      if (i > 0 && relu_) x = torch::relu(x);
      x = linears_[i]->forward(x);
    }
    return x;
  }

 private:
  bool relu_;
  std::vector<torch::nn::Linear> linears_;
};

void check_model(const ModelSpec& spec) {
  if (spec.type != "mlp") {
    throw Error(ErrorKind::spec, fmt::format("model.type: '{}' is not a known model", spec.type),
                "known models: mlp");
  }
  if (spec.activation != "none" && spec.activation != "relu") {
    throw Error(ErrorKind::spec,
                fmt::format("model.activation: '{}' is not a known activation", spec.activation),
                "known activations: none, relu");
  }
  if (spec.layers.size() < 2) {
    throw Error(ErrorKind::spec,
                fmt::format("model.layers: an mlp needs at least two widths, got {}", spec.layers.size()),
                "give the input's width first and the number of classes last, for example [784, 512, 10]");
  }
}

}  // namespace

Model build_model(const ModelSpec& spec) {
  check_model(spec);
  auto mlp = std::make_shared<Mlp>(spec.layers, spec.activation == "relu");
  return {mlp, [mlp](const at::Tensor& input) { return mlp->forward(input); }};
}

std::vector<LayerInfo> describe_model(const ModelSpec& spec) {
  check_model(spec);
  std::vector<LayerInfo> layers;
  for (std::size_t i = 1; i < spec.layers.size(); ++i) {
    const auto in = spec.layers[i - 1], out = spec.layers[i];
    layers.push_back({fmt::format("fc{}", i), fmt::format("Linear({}, {})", in, out), in * out + out});
  }
  return layers;
}

void check_model_fits(const ModelSpec& spec, const DatasetInfo& dataset) {
  check_model(spec);
  const auto width = std::accumulate(dataset.item_shape.begin(), dataset.item_shape.end(), std::int64_t{1},
                                     std::multiplies<>());
  if (spec.layers.front() != width) {
    throw Error(ErrorKind::spec,
                fmt::format("model.layers: layer fc1 takes {} inputs, but an image of {} ({}) has {} = {}",
                            spec.layers.front(), dataset.type, dataset.origin,
                            fmt::join(dataset.item_shape, "×"), width),
                fmt::format("make the first width {}", width));
  }
  if (spec.layers.back() < dataset.classes) {
    throw Error(ErrorKind::spec,
                fmt::format("model.layers: layer fc{} has {} outputs, but {} ({}) has {} classes",
                            spec.layers.size() - 1, spec.layers.back(), dataset.type, dataset.origin,
                            dataset.classes),
                fmt::format("make the last width {}", dataset.classes));
  }
}

}  // namespace dtorch
