// Models whose gradients are known to the last bit; ddp_golden.py has the same ones.
#pragma once
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

namespace dtorch::testing {

/** Numbers with full mantissas, different for each rank, step and parameter. */
inline at::Tensor coefficients(int rank, int step, int parameter, std::int64_t size) {
  const auto factor = static_cast<double>((rank + 1) * (step + 2) * (parameter + 3));
  return torch::arange(1, size + 1, torch::kFloat32) * factor / 7.0;
}

/** Four vectors; the gradient of each is coefficients(rank, step, its index). */
struct BagImpl : torch::nn::Module {
  BagImpl() {
    const std::vector<std::pair<std::string, std::int64_t>> sizes{{"a", 5}, {"b", 3}, {"c", 4}, {"d", 2}};
    for (const auto& [name, size] : sizes) {
      const auto first = static_cast<float>(tensors.size());
      tensors.push_back(register_parameter(name, torch::arange(size, torch::kFloat32) + first));
    }
  }

  at::Tensor forward(int rank, int step, const std::string& use = "abcd") {
    auto sum = torch::zeros({});
    for (const char name : use) {
      const int index = name - 'a';
      const auto& tensor = tensors[static_cast<std::size_t>(index)];
      sum = sum + (tensor * coefficients(rank, step, index, tensor.numel())).sum();
    }
    return sum;
  }

  std::vector<at::Tensor> tensors;
};
TORCH_MODULE(Bag);

struct PerceptronImpl : torch::nn::Module {
  PerceptronImpl(std::int64_t inputs, std::int64_t hidden, std::int64_t outputs)
      : fc1(register_module("fc1", torch::nn::Linear(inputs, hidden))),
        fc2(register_module("fc2", torch::nn::Linear(hidden, outputs))) {}

  at::Tensor forward(const at::Tensor& x) { return fc2(torch::relu(fc1(x))); }

  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Perceptron);

/** Bit for bit; an empty list stands for no gradient at all. */
inline bool same_bits(const at::Tensor& tensor, const std::vector<float>& values) {
  if (!tensor.defined()) return values.empty();
  return at::equal(tensor.detach().reshape(-1), torch::tensor(values, torch::kFloat32));
}

inline std::map<std::string, at::Tensor> gradients(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> found;
  for (const auto& item : module.named_parameters()) found[item.key()] = item.value().grad();
  return found;
}

}  // namespace dtorch::testing
