// The values that a benchmark's collectives move: known everywhere, so that every element of a result can be checked.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/bytes/reduce_op.h"

namespace dtorch::bench {

/**
 * Each rank's buffers repeat a row of 251 small whole numbers (a prime: pieces that end up in the wrong place show). Small
 * enough that every reduction is exact in every type, whatever the order, up to 4,096 ranks (int8: to wrap-around).
 */
class Pattern {
 public:
  static constexpr std::int64_t kPeriod = 251;

  Pattern(at::ScalarType type, ReduceOp op, int world_size);

  /** Elements first, first+1, ... of the buffer of a rank. */
  at::Tensor part(int rank, std::int64_t first, std::int64_t count) const;
  /** The same of the element-wise reduction over all ranks' buffers. */
  at::Tensor reduced(std::int64_t first, std::int64_t count) const;

 private:
  at::Tensor row(int rank) const;
  at::Tensor repeated(const at::Tensor& row, std::int64_t first, std::int64_t count) const;

  at::ScalarType type_;
  ReduceOp op_;
  int world_size_;
};

}  // namespace dtorch::bench
