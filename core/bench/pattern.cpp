#include "core/bench/pattern.h"

#include <ATen/ATen.h>

namespace dtorch::bench {
namespace {

/** An average is exact only where the sum is a multiple of the ranks. */
std::int64_t average_value(int rank, std::int64_t k, int world_size) {
  return k % 5 + (2 * rank - (world_size - 1)) * (k % 3);
}

std::int64_t value(int rank, std::int64_t k, ReduceOp op, int world_size) {
  switch (op) {
    case ReduceOp::avg: return average_value(rank, k, world_size);
    case ReduceOp::product: return k % world_size == rank ? 2 : 1;
    case ReduceOp::sum: return (k + rank) % 2 + (k % 7 == 0 ? 1 : 0);
    case ReduceOp::min:
    case ReduceOp::max: return (k * 3 + rank * 5) % 11;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor: return (k + rank * 37) % 128;
  }
  return 0;
}

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::avg:
    case ReduceOp::sum: return a + b;
    case ReduceOp::product: return a * b;
    case ReduceOp::min: return at::minimum(a, b);
    case ReduceOp::max: return at::maximum(a, b);
    case ReduceOp::band: return at::bitwise_and(a, b);
    case ReduceOp::bor: return at::bitwise_or(a, b);
    case ReduceOp::bxor: return at::bitwise_xor(a, b);
  }
  return a;
}

}  // namespace

Pattern::Pattern(at::ScalarType type, ReduceOp op, int world_size)
    : type_(type), op_(op), world_size_(world_size) {}

/** One period as int64. */
at::Tensor Pattern::row(int rank) const {
  at::Tensor values = at::empty({kPeriod}, at::kLong);
  auto* data = values.data_ptr<std::int64_t>();
  for (std::int64_t k = 0; k < kPeriod; ++k) data[k] = value(rank, k, op_, world_size_);
  return type_ == at::kBool ? values.remainder(2) : values;
}

at::Tensor Pattern::repeated(const at::Tensor& row, std::int64_t first, std::int64_t count) const {
  const std::int64_t skip = first % kPeriod;
  const std::int64_t times = (skip + count + kPeriod - 1) / kPeriod;
  return row.to(type_).repeat({std::max<std::int64_t>(times, 1)}).narrow(0, skip, count);
}

at::Tensor Pattern::part(int rank, std::int64_t first, std::int64_t count) const {
  return repeated(row(rank), first, count);
}

at::Tensor Pattern::reduced(std::int64_t first, std::int64_t count) const {
  at::Tensor result = row(0);
  for (int rank = 1; rank < world_size_; ++rank) result = combined(result, row(rank), op_);
  if (op_ == ReduceOp::avg) result = result.div(world_size_, "floor");
  return repeated(result, first, count);
}

}  // namespace dtorch::bench
