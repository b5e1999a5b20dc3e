#include "core/bytes/reduce_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"
#include "core/bytes/half.h"

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
  auto* to = static_cast<T*>(out);
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
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

/** How rows of a type are computed in another. */
struct Widening {
  void (*load)(float* to, const void* from, std::size_t count);
  void (*store)(void* to, const float* from, std::size_t count);
};

template <float (*convert)(std::uint16_t)>
void load(float* to, const void* from, std::size_t count) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  for (std::size_t i = 0; i < count; ++i) to[i] = convert(bits[i]);
}

template <std::uint16_t (*convert)(float)>
void store(void* to, const float* from, std::size_t count) {
  auto* bits = static_cast<std::uint16_t*>(to);
  for (std::size_t i = 0; i < count; ++i) bits[i] = convert(from[i]);
}

template <typename T>
void divide(void* row, std::size_t count, std::size_t by) {
  auto* values = static_cast<T*>(row);
  for (std::size_t i = 0; i < count; ++i) values[i] /= static_cast<T>(by);
}

const char* at(const void* row, std::size_t offset) { return static_cast<const char*>(row) + offset; }

void reduce_narrow(void* result, std::span<const void* const> parts, std::size_t count,
                   const Widening& widening, ReduceKernel kernel, bool average) {
  std::array<float, kTile> sum;
  std::array<float, kTile> next;
  for (std::size_t begin = 0; begin < count; begin += kTile) {
    const std::size_t length = std::min(kTile, count - begin);
    const std::size_t offset = begin * sizeof(std::uint16_t);
    widening.load(sum.data(), at(parts[0], offset), length);
    for (const void* part : parts.subspan(1)) {
      widening.load(next.data(), at(part, offset), length);
      kernel(sum.data(), sum.data(), next.data(), length);
    }
    if (average) divide<float>(sum.data(), length, parts.size());
    widening.store(static_cast<char*>(result) + offset, sum.data(), length);
  }
}

void reduce_wide(void* result, std::span<const void* const> parts, std::size_t count, DataType type,
                 ReduceKernel kernel, bool average) {
  const std::size_t size = size_of(type);
  // The result may be one of the parts, which must then be read before it is written.
  alignas(std::int64_t) std::array<char, kTile * sizeof(std::int64_t)> scratch;
  const bool in_place = std::find(parts.begin() + 1, parts.end(), result) != parts.end() && parts.size() > 2;
  for (std::size_t begin = 0; begin < count; begin += kTile) {
    const std::size_t length = std::min(kTile, count - begin);
    const std::size_t offset = begin * size;
    char* to = static_cast<char*>(result) + offset;
    char* sum = in_place ? scratch.data() : to;
    if (parts.size() == 1) {
      std::memmove(sum, at(parts[0], offset), length * size);
    } else {
      kernel(sum, at(parts[0], offset), at(parts[1], offset), length);
      for (const void* part : parts.subspan(2)) kernel(sum, sum, at(part, offset), length);
    }
    if (average) (type == DataType::float32 ? divide<float> : divide<double>)(sum, length, parts.size());
    if (in_place) std::memcpy(to, sum, length * size);
  }
}

}  // namespace

ReduceKernel reduce_kernel(DataType type, ReduceOp op) {
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

void reduce_parts(void* result, std::span<const void* const> parts, std::size_t count, DataType type,
                  ReduceOp op) {
  static constexpr Widening kHalf{load<from_float16>, store<to_float16>};
  static constexpr Widening kBrain{load<from_bfloat16>, store<to_bfloat16>};
  const bool narrow = type == DataType::float16 || type == DataType::bfloat16;
  const auto kernel = reduce_kernel(narrow ? DataType::float32 : type, op);
  if (kernel == nullptr)
    throw Error(ErrorKind::usage,
                fmt::format("there is no reduction {} of {}", to_string(op), to_string(type)));
  const bool average = op == ReduceOp::avg;
  if (narrow) {
    reduce_narrow(result, parts, count, type == DataType::float16 ? kHalf : kBrain, kernel, average);
  } else {
    reduce_wide(result, parts, count, type, kernel, average);
  }
}

}  // namespace dtorch
