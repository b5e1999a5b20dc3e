#include "core/bytes/reduce_loops.h"

namespace dtorch {

ReduceLevel baseline_reduce() { return {kernel_for, reduce_rows}; }

}  // namespace dtorch
