#include "core/train/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
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

std::vector<SpecProblem> model_misfits(const ModelSpec& spec, const DatasetInfo& dataset) {
  check_model(spec);
  std::vector<SpecProblem> problems;
  const auto width = std::accumulate(dataset.item_shape.begin(), dataset.item_shape.end(), std::int64_t{1},
                                     std::multiplies<>());
  const std::string whose = fmt::format("{} ({})", dataset.type, dataset.origin);
  if (spec.layers.front() != width) {
    problems.push_back({"model.layers.0",
                        {},
                        fmt::format("the model takes {} inputs, an image of {} has {} = {}",
                                    spec.layers.front(), whose, fmt::join(dataset.item_shape, "×"), width),
                        fmt::format("make the first width {}", width)});
  }
  const auto outputs = spec.layers.back();
  if (outputs >= dataset.classes) return problems;
  const auto& places = dataset.label_places;
  const auto beyond = std::find_if(places.begin() + std::min<std::ptrdiff_t>(outputs, std::ssize(places)),
                                   places.end(), [](const auto& place) { return !place.empty(); });
  const auto label = beyond - places.begin();
  if (beyond != places.end() && label > outputs) {  // no item has the label `outputs`
    problems.push_back(
        {{},
         dataset.labels_file,
         fmt::format("{}: expected a label from 0 to {}, as the model has {} outputs, found {}", *beyond,
                     outputs - 1, outputs, label),
         fmt::format("the file seems damaged; if it is right, make the last of 'model.layers' {}",
                     dataset.classes)});
  } else {
    problems.push_back(
        {fmt::format("model.layers.{}", spec.layers.size() - 1),
         {},
         fmt::format("the model has {} outputs, {} has {} classes", outputs, whose, dataset.classes),
         fmt::format("make the last width {}", dataset.classes)});
  }
  return problems;
}

}  // namespace dtorch
