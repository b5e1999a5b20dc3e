// Where messages of our own travel beside Gloo's collectives, whose slots begin with the bytes 1 to 8.
#pragma once
#include <cstdint>

namespace dtorch::gloo_backend {

enum class SlotKind : std::uint8_t {
  agreement = 0x80,    ///< signatures, numbered by sequence
  exchange = 0x81,     ///< parts of a collective, numbered by sequence
  send_header = 0x82,  ///< point to point, numbered by the caller's tag
  recv_header = 0x83,
  data = 0x84,
};

inline std::uint64_t slot(SlotKind kind, std::uint64_t number) {
  return (static_cast<std::uint64_t>(kind) << 56) | (number & 0x00ff'ffff'ffff'ffffU);
}

}  // namespace dtorch::gloo_backend
