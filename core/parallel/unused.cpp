#include "core/parallel/unused.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace dtorch {

std::unordered_set<const torch::autograd::Node*> nodes_behind(const std::vector<at::Tensor>& outputs) {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> open;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const auto& output : outputs) {
    if (output.defined() && output.requires_grad())
      visit(torch::autograd::impl::gradient_edge(output).function.get());
  }
  while (!open.empty()) {
    const auto* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return seen;
}

}  // namespace dtorch
