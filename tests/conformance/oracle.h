// Right answers, computed serially from the inputs of all ranks in double and int64, in which all of them are
// exact.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/bytes/reduce_op.h"

namespace dtorch::conformance {

/** All the dtypes a backend must move. */
const std::vector<at::ScalarType>& all_dtypes();
bool is_integral(at::ScalarType dtype);
/** The reductions that a dtype has. */
std::vector<ReduceOp> reductions_of(at::ScalarType dtype);
std::string label(at::ScalarType dtype, std::int64_t size);

/**
 * Rank `rank`'s input: exact in the dtype, different on every rank, the same on every call. For products the
 * values are near one. Sums need more digits than 16-bit floats have, so that rounding more than once shows.
 */
at::Tensor input_of(int rank, std::int64_t size, at::ScalarType dtype, std::uint64_t salt,
                    bool for_product = false);
/** Element by element over the inputs in order; integers wrap as C's do. */
at::Tensor reduced(const std::vector<at::Tensor>& inputs, ReduceOp op);

}  // namespace dtorch::conformance
