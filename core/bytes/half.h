// float16 and bfloat16 as their bits, to and from float32. Rounds to nearest, ties to even, as PyTorch does. Always
// inlined: the loops of reductions are compiled for several kinds of processors, and a shared copy would be one of
// theirs.
#pragma once
#include <bit>
#include <cstdint>

namespace dtorch {

[[gnu::always_inline]] inline float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

[[gnu::always_inline]] inline std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<std::uint16_t>(value != value ? 0x7fc0U : rounded);
}

[[gnu::always_inline]] inline float from_float16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffU) << 13;
  // The exponent is moved to float32's place and corrected by a multiplication, which makes subnormals right too.
  const float scaled = std::bit_cast<float>(magnitude) * std::bit_cast<float>(std::uint32_t{239} << 23);
  const std::uint32_t special = (bits & 0x7c00U) == 0x7c00U ? 0x7f800000U : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

/** All cases are computed and one is taken, so that loops over it become vector code. */
[[gnu::always_inline]] inline std::uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t normal = (magnitude - 0x38000000U + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Subnormal: adding 0.5 leaves the wanted bits, rounded, at the end of the mantissa.
  const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000U;
  std::uint32_t result = magnitude < 0x38800000U ? subnormal : normal;
  result = magnitude >= 0x477ff000U ? 0x7c00U : result;  // rounds to infinity
  result = magnitude > 0x7f800000U ? 0x7e00U : result;
  return static_cast<std::uint16_t>(sign | result);
}

}  // namespace dtorch
