#include "backends/gloo/reduction.h"

#include <ATen/ATen.h>

namespace dtorch::gloo_backend {
at::Tensor widened(const at::Tensor& tensor) {
  const bool narrow = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return narrow ? tensor.to(at::kFloat) : tensor;
}

ReduceKernel kernel_for(const at::Tensor& tensor, ReduceOp op) {
  return reduce_kernel(static_cast<DataType>(tensor.scalar_type()), op);
}

void reduce_rows(const at::Tensor& parts, ReduceOp op, const at::Tensor& result) {
  std::vector<const void*> rows(static_cast<std::size_t>(parts.size(0)));
  const auto* row = static_cast<const char*>(parts.const_data_ptr());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = row + i * result.nbytes();
  reduce_parts(result.mutable_data_ptr(), rows, static_cast<std::size_t>(result.numel()),
               static_cast<DataType>(result.scalar_type()), op);
}

}  // namespace dtorch::gloo_backend
