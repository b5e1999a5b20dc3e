#include "core/bytes/reduce_loops.h"

namespace dtorch {

ReduceLevel avx2_reduce() { return {kernel_for, reduce_rows}; }

}  // namespace dtorch
