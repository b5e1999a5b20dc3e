// A module's parameters and buffers as the ranks must agree on them.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/comm/process_group.h"

namespace torch::nn {
class Module;
}

namespace dtorch {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/** In registration order; a tensor registered under several names appears once, under the first. */
std::vector<NamedTensor> parameters_of(const torch::nn::Module& module);
std::vector<NamedTensor> buffers_of(const torch::nn::Module& module);

/** Lines that must be equal on all ranks: "parameter fc1.weight: float32 [512, 784]". */
std::vector<std::string> describe(const std::vector<NamedTensor>& parameters,
                                  const std::vector<NamedTensor>& buffers);

/**
 * Compares the lines over the group. Throws Error(disagree) on every rank, naming the first line that differs
 * from rank 0's and the ranks. Blocks.
 */
void check_agreement(ProcessGroup& group, const std::vector<std::string>& lines);

/** Overwrites the tensors with root's, few messages for many tensors. Their types and shapes must agree.
 * Blocks. */
void broadcast_tensors(ProcessGroup& group, const std::vector<NamedTensor>& tensors, int root);

}  // namespace dtorch
