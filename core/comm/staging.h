// Backends take contiguous tensors; callers may give any. A staged tensor is the contiguous stand-in and the
// way back.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace dtorch {

struct Staged {
  at::Tensor tensor;             ///< contiguous, without autograd
  std::function<void()> finish;  ///< copies the result to where it belongs; empty if it is there already
};

/** A tensor that is only read. */
at::Tensor stage_input(const at::Tensor& tensor);
/** Read and written. */
Staged stage_in_place(const at::Tensor& tensor);
/** Only written. */
Staged stage_output(const at::Tensor& tensor);
/** The elements of all, one after the other. */
at::Tensor stage_inputs(const std::vector<at::Tensor>& tensors, const at::Tensor& like);
/** One flat tensor whose parts end up in `tensors`. */
Staged stage_outputs(const std::vector<at::Tensor>& tensors, const at::Tensor& like);
/** One flat tensor for all, read and written. */
Staged stage_coalesced(const std::vector<at::Tensor>& tensors);
/** Tells lists of sizes apart. */
std::uint64_t hash_of_sizes(const std::vector<at::Tensor>& tensors);

}  // namespace dtorch
