// Which parameters a forward pass did not use.
#pragma once
#include <ATen/core/Tensor.h>

#include <unordered_set>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace dtorch {

/** Every node of the autograd graph that the outputs depend on, gradient accumulators of leaves among them.
 */
std::unordered_set<const torch::autograd::Node*> nodes_behind(const std::vector<at::Tensor>& outputs);

}  // namespace dtorch
