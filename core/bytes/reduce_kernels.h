// Element-wise reductions on plain memory.
#pragma once
#include <cstddef>
#include <span>

#include "core/bytes/data_type.h"
#include "core/bytes/reduce_op.h"

namespace dtorch {

/** out[i] = a[i] op b[i]; out may be a or b. */
using ReduceKernel = void (*)(void* out, const void* a, const void* b, std::size_t count);

/**
 * The kernel for a pair of rows; avg gives the sum's (the caller divides). Integers wrap; bool: sum, max and bor are
 * or, product, min and band are and; min and max give NaN if either is. Null where there is none: bitwise on
 * floats, an average of integers, and 16-bit floats, which are for reduce_parts().
 */
ReduceKernel reduce_kernel(DataType type, ReduceOp op);

/**
 * result[i] = parts[0][i] op parts[1][i] op ..., in that order; avg divides the sum by the number of parts. result
 * may be one of the parts; otherwise they do not overlap. Pointers are aligned to their type. float16 and bfloat16
 * are computed in float32 and rounded once. Throws Error(usage) for a pair that has no meaning.
 */
void reduce_parts(void* result, std::span<const void* const> parts, std::size_t count, DataType type,
                  ReduceOp op);

}  // namespace dtorch
