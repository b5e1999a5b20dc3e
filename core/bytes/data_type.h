// The types of elements that collectives move, without libtorch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtorch {

/** Numbered as at::ScalarType, so that a tensor's type is one of these without a table. */
enum class DataType : std::int8_t {
  uint8 = 0,
  int8 = 1,
  int32 = 3,
  int64 = 4,
  float16 = 5,
  float32 = 6,
  float64 = 7,
  boolean = 11,
  bfloat16 = 15,
};

/** "float32"; "unknown" for a number that is none of them. */
std::string_view to_string(DataType type);

/** Bytes of one element. */
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::float64:
    case DataType::int64: return 8;
    case DataType::float32:
    case DataType::int32: return 4;
    case DataType::float16:
    case DataType::bfloat16: return 2;
    case DataType::int8:
    case DataType::uint8:
    case DataType::boolean: return 1;
  }
  return 0;
}

}  // namespace dtorch
