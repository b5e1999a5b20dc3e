// From the spec's `model` section to a module with PyTorch's parameter names, order and initial values.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/job/places.h"
#include "core/job/spec.h"

namespace torch::nn {
class Module;
}

namespace dtorch {

/** One layer of a model, as the plan shows it. */
struct LayerInfo {
  std::string name;             ///< "fc1", the state_dict prefix
  std::string description;      ///< "Linear(784, 512)"
  std::int64_t parameters = 0;  ///< elements, weight and bias together
};

struct Model {
  std::shared_ptr<torch::nn::Module> module;
  /** float32 [b, ...item_shape] → float32 [b, classes]. */
  std::function<at::Tensor(const at::Tensor&)> forward;
};

/**
 * Draws initial weights from the default generator in PyTorch's order: after at::manual_seed(s) they are
 * those that Python's torch.manual_seed(s) gives. Throws Error(spec) for a type or an activation it does not
 * know.
 */
Model build_model(const ModelSpec& spec);

/** The layers that build_model would make, without making them. */
std::vector<LayerInfo> describe_model(const ModelSpec& spec);

/**
 * Where the model does not take the dataset's items or lacks classes; empty when it fits. A label that stands alone far
 * above the model's outputs is taken for damage in its file.
 */
std::vector<SpecProblem> model_misfits(const ModelSpec& spec, const DatasetInfo& dataset);

}  // namespace dtorch
