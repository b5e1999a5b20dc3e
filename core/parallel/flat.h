// Flat memory that many tensors are slices of.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/comm/process_group.h"

namespace dtorch {

/** A bucket of gradients: each parameter's starts at its offset, in elements. */
struct GradientBucket {
  at::Tensor gradients;  ///< flat
  std::vector<at::Tensor> parameters;
  std::vector<std::int64_t> offsets;
};

/** Zeros in memory that the group's backend moves without a copy, where it has such. Call on all ranks alike. */
at::Tensor make_flat(ProcessGroup& group, std::int64_t elements, const at::TensorOptions& options);

/** Zeros in memory that all ranks of the group have in common; undefined where there is none. Call on all ranks
 * alike. */
at::Tensor make_common_flat(ProcessGroup& group, std::int64_t elements, const at::TensorOptions& options);

/** A slice with the shape and layout of `like`; not a view in autograd's eyes. */
at::Tensor make_slice(const at::Tensor& flat, std::int64_t offset, const at::Tensor& like);

/** This rank's part of a flat tensor that divides evenly. */
at::Tensor shard_of(const at::Tensor& flat, const ProcessGroup& group);

}  // namespace dtorch
