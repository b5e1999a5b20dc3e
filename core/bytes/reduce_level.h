// The same reductions for several levels of vector instructions; reduce_kernels.cpp takes the best one.
#pragma once
#include <cstddef>

#include "core/bytes/reduce_kernels.h"

namespace dtorch {

struct ReduceLevel {
  ReduceKernel (*kernel)(DataType type, ReduceOp op);
  /** As reduce_parts(); false for a pair that has no meaning. */
  bool (*parts)(void* result, const void* const* parts, std::size_t ranks, std::size_t count, DataType type,
                ReduceOp op);
};

/** What any processor runs. */
ReduceLevel baseline_reduce();
/** Those are the baseline too where the compiler knows no such instructions. */
ReduceLevel avx2_reduce();
ReduceLevel avx512_reduce();

}  // namespace dtorch
