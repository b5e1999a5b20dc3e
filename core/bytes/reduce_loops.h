// The loops of reductions. Compiled once for each level of vector instructions, by the sources that include this.
//
// Everything is local to its source, and nothing of the standard library that is not inlined at once is called: the
// linker keeps one copy of a shared inline function, which must not be one with instructions this processor lacks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/bytes/half.h"
#include "core/bytes/reduce_level.h"

// The iterations of the next loop do not depend on each other, though the compiler cannot see it.
#if defined(__clang__)
#define DTORCH_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DTORCH_INDEPENDENT _Pragma("GCC ivdep")
#endif

// NOLINTBEGIN(misc-definitions-in-headers): a copy in each source is what is wanted
namespace dtorch {
namespace {

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      // 64 bits wide: an int would overflow, which unsigned arithmetic does not.
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
// `a != a` is NaN; when only b is NaN the comparison is false and b is taken.
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct And {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

template <typename T, typename F>
void apply(void* out, const void* a, const void* b, std::size_t count) {
  const F combine{};
  // out may be a or b, but does not overlap them otherwise.
  auto* to = static_cast<T*>(out);
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  DTORCH_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) to[i] = combine(left[i], right[i]);
}

template <typename T>
ReduceKernel arithmetic(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return apply<T, Sum>;
    case ReduceOp::product: return apply<T, Product>;
    case ReduceOp::min: return apply<T, Min>;
    case ReduceOp::max: return apply<T, Max>;
    default: return nullptr;
  }
}

template <typename T>
ReduceKernel floating(ReduceOp op) {
  return arithmetic<T>(op == ReduceOp::avg ? ReduceOp::sum : op);
}

template <typename T>
ReduceKernel integral(ReduceOp op) {
  switch (op) {
    case ReduceOp::band: return apply<T, And>;
    case ReduceOp::bor: return apply<T, Or>;
    case ReduceOp::bxor: return apply<T, Xor>;
    default: return arithmetic<T>(op);
  }
}

// Stored as bytes 0 and 1, so the bitwise kernels of bytes serve.
ReduceKernel boolean(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bor: return apply<std::uint8_t, Or>;
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::band: return apply<std::uint8_t, And>;
    case ReduceOp::bxor: return apply<std::uint8_t, Xor>;
    case ReduceOp::avg: return nullptr;
  }
  return nullptr;
}

/** Elements reduced at a time: a tile of float32 stays in the first-level cache. */
constexpr std::size_t kTile = 1024;

struct Half {
  static float widen(std::uint16_t bits) { return from_float16(bits); }
  static std::uint16_t narrow(float value) { return to_float16(value); }
};
struct Brain {
  static float widen(std::uint16_t bits) { return from_bfloat16(bits); }
  static std::uint16_t narrow(float value) { return to_bfloat16(value); }
};

template <typename T>
void divide(void* row, std::size_t count, std::size_t by) {
  auto* values = static_cast<T*>(row);
  const T divisor = static_cast<T>(by);
  for (std::size_t i = 0; i < count; ++i) values[i] /= divisor;
}

const char* at(const void* row, std::size_t offset) { return static_cast<const char*>(row) + offset; }

template <typename Format>
void load(float* to, const void* from, std::size_t count) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  for (std::size_t i = 0; i < count; ++i) to[i] = Format::widen(bits[i]);
}

template <typename Format>
void reduce_narrow(void* result, const void* const* parts, std::size_t ranks, std::size_t count,
                   ReduceKernel kernel, bool average) {
  alignas(64) float sum[kTile];
  alignas(64) float next[kTile];
  for (std::size_t begin = 0; begin < count; begin += kTile) {
    const std::size_t length = count - begin < kTile ? count - begin : kTile;
    const std::size_t offset = begin * sizeof(std::uint16_t);
    load<Format>(sum, at(parts[0], offset), length);
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      load<Format>(next, at(parts[rank], offset), length);
      kernel(sum, sum, next, length);
    }
    if (average) divide<float>(sum, length, ranks);
    auto* to = static_cast<std::uint16_t*>(result) + begin;
    for (std::size_t i = 0; i < length; ++i) to[i] = Format::narrow(sum[i]);
  }
}

void reduce_wide(void* result, const void* const* parts, std::size_t ranks, std::size_t count, DataType type,
                 ReduceKernel kernel, bool average) {
  if (ranks == 2 && !average) {
    kernel(result, parts[0], parts[1], count);
    return;
  }
  const std::size_t size = size_of(type);
  // The result may be one of the parts, which must then be read before it is written.
  alignas(64) char scratch[kTile * 8];
  bool in_place = false;
  for (std::size_t rank = 1; rank < ranks && ranks > 2; ++rank) in_place = in_place || parts[rank] == result;
  for (std::size_t begin = 0; begin < count; begin += kTile) {
    const std::size_t length = count - begin < kTile ? count - begin : kTile;
    const std::size_t offset = begin * size;
    char* to = static_cast<char*>(result) + offset;
    char* sum = in_place ? scratch : to;
    if (ranks == 1) {
      std::memmove(sum, at(parts[0], offset), length * size);
    } else {
      kernel(sum, at(parts[0], offset), at(parts[1], offset), length);
      for (std::size_t rank = 2; rank < ranks; ++rank) kernel(sum, sum, at(parts[rank], offset), length);
    }
    if (average) (type == DataType::float32 ? divide<float> : divide<double>)(sum, length, ranks);
    if (in_place) std::memcpy(to, sum, length * size);
  }
}

ReduceKernel kernel_for(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::float32: return floating<float>(op);
    case DataType::float64: return floating<double>(op);
    case DataType::int8: return integral<std::int8_t>(op);
    case DataType::int32: return integral<std::int32_t>(op);
    case DataType::int64: return integral<std::int64_t>(op);
    case DataType::uint8: return integral<std::uint8_t>(op);
    case DataType::boolean: return boolean(op);
    case DataType::float16:
    case DataType::bfloat16: return nullptr;
  }
  return nullptr;
}

bool reduce_rows(void* result, const void* const* parts, std::size_t ranks, std::size_t count, DataType type,
                 ReduceOp op) {
  const bool narrow = type == DataType::float16 || type == DataType::bfloat16;
  const auto kernel = kernel_for(narrow ? DataType::float32 : type, op);
  if (kernel == nullptr) return false;
  const bool average = op == ReduceOp::avg;
  if (type == DataType::float16) {
    reduce_narrow<Half>(result, parts, ranks, count, kernel, average);
  } else if (narrow) {
    reduce_narrow<Brain>(result, parts, ranks, count, kernel, average);
  } else {
    reduce_wide(result, parts, ranks, count, type, kernel, average);
  }
  return true;
}

}  // namespace
}  // namespace dtorch
// NOLINTEND(misc-definitions-in-headers)
