// A hash that is the same on every machine.
#pragma once
#include <cstdint>
#include <string_view>

namespace dtorch {

/** FNV-1a. Against mistakes and mix-ups, not against an adversary. Hashes of other `basis` are independent of each other. */
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t basis = 0xcbf29ce484222325U) {
  for (const char byte : bytes) basis = (basis ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return basis;
}

}  // namespace dtorch
