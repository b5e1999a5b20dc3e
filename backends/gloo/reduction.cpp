#include "backends/gloo/reduction.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "core/base/error.h"

namespace dtorch::gloo_backend {
namespace {

ElementType element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return ElementType::float32;
    case at::kDouble: return ElementType::float64;
    case at::kChar: return ElementType::int8;
    case at::kInt: return ElementType::int32;
    case at::kLong: return ElementType::int64;
    case at::kByte: return ElementType::uint8;
    case at::kBool: return ElementType::boolean;
    default: throw Error(ErrorKind::usage, fmt::format("gloo: cannot reduce {}", c10::toString(type)));
  }
}

}  // namespace

at::Tensor widened(const at::Tensor& tensor) {
  const bool narrow = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return narrow ? tensor.to(at::kFloat) : tensor;
}

ReduceKernel kernel_for(const at::Tensor& tensor, ReduceOp op) {
  const auto kernel = reduce_kernel(element_type(tensor.scalar_type()), op);
  if (kernel == nullptr) {
    throw Error(ErrorKind::usage, fmt::format("gloo: no reduction {} for {}", to_string(op),
                                              c10::toString(tensor.scalar_type())));
  }
  return kernel;
}

void reduce_rows(const at::Tensor& parts, ReduceOp op, const at::Tensor& result) {
  const at::Tensor wide = widened(parts);
  const auto rows = static_cast<std::size_t>(wide.size(0));
  const auto count = static_cast<std::size_t>(result.numel());
  const bool in_result = result.scalar_type() == wide.scalar_type();
  const at::Tensor sum = in_result ? result : at::empty_like(result, wide.options());
  const auto kernel = kernel_for(wide, op);
  const auto* row = static_cast<const char*>(wide.const_data_ptr());
  const std::size_t stride = count * wide.element_size();
  if (rows == 1) {
    sum.copy_(wide[0].view_as(sum));
  } else {
    kernel(sum.mutable_data_ptr(), row, row + stride, count);
    for (std::size_t i = 2; i < rows; ++i)
      kernel(sum.mutable_data_ptr(), sum.const_data_ptr(), row + i * stride, count);
  }
  if (op == ReduceOp::avg) sum.div_(static_cast<double>(rows));
  if (!in_result) result.copy_(sum);
}

}  // namespace dtorch::gloo_backend
