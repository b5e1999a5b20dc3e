#include "core/bytes/reduce_kernels.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/bytes/reduce_level.h"

namespace dtorch {
namespace {

ReduceLevel best_level() {
#if defined(__x86_64__)
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (wide) return avx512_reduce();
  if (__builtin_cpu_supports("avx2")) return avx2_reduce();
#endif
  return baseline_reduce();
}

const ReduceLevel& level() {
  static const ReduceLevel best = best_level();
  return best;
}

}  // namespace

ReduceKernel reduce_kernel(DataType type, ReduceOp op) { return level().kernel(type, op); }

void reduce_parts(void* result, std::span<const void* const> parts, std::size_t count, DataType type,
                  ReduceOp op) {
  if (level().parts(result, parts.data(), parts.size(), count, type, op)) return;
  throw Error(ErrorKind::usage,
              fmt::format("there is no reduction {} of {}", to_string(op), to_string(type)));
}

}  // namespace dtorch
