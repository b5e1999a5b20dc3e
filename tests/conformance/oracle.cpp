#include "tests/conformance/oracle.h"

#include <algorithm>
#include <array>

namespace dtorch::conformance {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

double float_value(std::uint64_t random, at::ScalarType dtype) {
  // bfloat16 has 8 significant bits, float16 has 11.
  const auto span = dtype == at::kBFloat16 ? 127 : 1023;
  const double scale = dtype == at::kBFloat16 ? 16 : 64;
  return static_cast<double>(static_cast<std::int64_t>(random % (2 * span + 1)) - span) / scale;
}

double combine(double a, double b, ReduceOp op) {
  switch (op) {
    case ReduceOp::product: return a * b;
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    default: return a + b;
  }
}

std::int64_t combine(std::int64_t a, std::int64_t b, ReduceOp op) {
  switch (op) {
    case ReduceOp::product: return a * b;
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    case ReduceOp::band: return a & b;
    case ReduceOp::bor: return a | b;
    case ReduceOp::bxor: return a ^ b;
    default: return a + b;
  }
}

template <typename T>
at::Tensor fold(const std::vector<at::Tensor>& inputs, ReduceOp op, at::ScalarType wide) {
  const at::Tensor result = inputs.front().to(wide).clone();
  auto* values = result.data_ptr<T>();
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const at::Tensor input = inputs[rank].to(wide);
    const auto* more = input.const_data_ptr<T>();
    for (std::int64_t i = 0; i < result.numel(); ++i) values[i] = combine(values[i], more[i], op);
  }
  if (op == ReduceOp::avg) {
    for (std::int64_t i = 0; i < result.numel(); ++i) values[i] /= static_cast<T>(inputs.size());
  }
  return result;
}

}  // namespace

const std::vector<at::ScalarType>& all_dtypes() {
  static const std::vector<at::ScalarType> dtypes{at::kHalf,   at::kBFloat16, at::kFloat,
                                                  at::kDouble, at::kChar,     at::kInt,
                                                  at::kLong,   at::kByte,     at::kBool};
  return dtypes;
}

bool is_integral(at::ScalarType dtype) { return c10::isIntegralType(dtype, true); }

std::vector<ReduceOp> reductions_of(at::ScalarType dtype) {
  std::vector<ReduceOp> ops{ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max};
  if (is_integral(dtype)) {
    ops.insert(ops.end(), {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor});
  } else {
    ops.push_back(ReduceOp::avg);
  }
  return ops;
}

std::string label(at::ScalarType dtype, std::int64_t size) {
  return std::string(c10::toString(dtype)) + "[" + std::to_string(size) + "]";
}

at::Tensor input_of(int rank, std::int64_t size, at::ScalarType dtype, std::uint64_t salt, bool for_product) {
  const at::Tensor wide = at::empty({size}, is_integral(dtype) ? at::kLong : at::kDouble);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto random =
        mix(mix(salt * 1000 + static_cast<std::uint64_t>(rank)) + static_cast<std::uint64_t>(i));
    if (dtype == at::kBool) {
      wide.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(random & 1);
    } else if (is_integral(dtype)) {
      const std::int64_t value = static_cast<std::int64_t>(random % (for_product ? 4 : 100));
      wide.data_ptr<std::int64_t>()[i] = dtype == at::kByte || for_product ? value : value - 50;
    } else if (for_product) {
      constexpr std::array<double, 6> kFactors{0.5, 1, -1, 2, 1.5, -1.5};
      wide.data_ptr<double>()[i] = kFactors[random % kFactors.size()];
    } else {
      wide.data_ptr<double>()[i] = float_value(random, dtype);
    }
  }
  return wide.to(dtype);
}

at::Tensor reduced(const std::vector<at::Tensor>& inputs, ReduceOp op) {
  const auto dtype = inputs.front().scalar_type();
  if (!is_integral(dtype)) {
    // An average is the sum's, divided in the type it was summed in.
    if (op == ReduceOp::avg && dtype != at::kDouble) {
      const at::Tensor sum = fold<double>(inputs, ReduceOp::sum, at::kDouble).to(at::kFloat);
      return sum.div(static_cast<double>(inputs.size())).to(dtype);
    }
    return fold<double>(inputs, op, at::kDouble).to(dtype);
  }
  return fold<std::int64_t>(inputs, op, at::kLong).to(dtype);
}

}  // namespace dtorch::conformance
