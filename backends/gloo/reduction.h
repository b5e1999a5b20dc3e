// Local sums of tensors, in rank order.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/bytes/reduce_kernels.h"

namespace dtorch::gloo_backend {

/** 16-bit floats widened to float32, anything else as it is. */
at::Tensor widened(const at::Tensor& tensor);
/** The kernel for a tensor that is not a 16-bit float. */
ReduceKernel kernel_for(const at::Tensor& tensor, ReduceOp op);
/** Reduces the rows of `parts` [n, count], from the first to the last, and stores the result in `result`
 * [count], rounded once. */
void reduce_rows(const at::Tensor& parts, ReduceOp op, const at::Tensor& result);

}  // namespace dtorch::gloo_backend
