#include "core/comm/reduce_kernels.h"

#include <type_traits>

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
    case ReduceOp::sum:
    case ReduceOp::avg: return apply<T, Sum>;
    case ReduceOp::product: return apply<T, Product>;
    case ReduceOp::min: return apply<T, Min>;
    case ReduceOp::max: return apply<T, Max>;
    default: return nullptr;
  }
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

}  // namespace

ReduceKernel reduce_kernel(ElementType type, ReduceOp op) {
  switch (type) {
    case ElementType::float32: return arithmetic<float>(op);
    case ElementType::float64: return arithmetic<double>(op);
    case ElementType::int8: return integral<std::int8_t>(op);
    case ElementType::int32: return integral<std::int32_t>(op);
    case ElementType::int64: return integral<std::int64_t>(op);
    case ElementType::uint8: return integral<std::uint8_t>(op);
    case ElementType::boolean: return boolean(op);
  }
  return nullptr;
}

}  // namespace dtorch
