// Element-wise reductions on plain memory, for backends that reduce on the CPU. 16-bit floats are not among
// them: they are widened to float32 first, so that a sum is rounded once.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/comm/reduce_op.h"

namespace dtorch {

enum class ElementType : std::uint8_t { float32, float64, int8, int32, int64, uint8, boolean };

/** out[i] = a[i] op b[i]; out may be a or b. */
using ReduceKernel = void (*)(void* out, const void* a, const void* b, std::size_t count);

/**
 * The kernel for a pair; avg gives the sum's (the caller divides). Integers wrap; bool: sum, max and bor are
 * or, product, min and band are and; min and max give NaN if either is. Null where there is none: bitwise on
 * floats.
 */
ReduceKernel reduce_kernel(ElementType type, ReduceOp op);

}  // namespace dtorch
