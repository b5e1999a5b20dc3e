// Any bytes are frames of the group or refused: nothing of a frame is out of its bounds once it was accepted.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "backends/tcp/engine/frame.h"

namespace {

using dtorch::tcp::Frame;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_farewell(std::span<const std::byte> bytes, int world) {
  const auto farewell = dtorch::tcp::parse_farewell(bytes, world);
  for (const int rank : farewell.ranks) require(rank >= 0 && rank < world);
  const auto again = dtorch::tcp::parse_farewell(dtorch::tcp::pack(farewell), world);
  require(again.text == farewell.text && again.ranks == farewell.ranks && again.done == farewell.done);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const auto channel = static_cast<dtorch::tcp::Channel>(data[0] & 1);
  // Token and source are zero, so that the fuzzer gets past them.
  const dtorch::tcp::FrameRules rules{0, 0, 5, channel};
  auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  try {
    while (const auto frame = dtorch::tcp::parse_frame(bytes, rules)) {
      require(frame->source == 0 && frame->signature.root < 5 && frame->signature.count >= 0);
      static_cast<void>(dtorch::describe(frame->signature));
      bytes = bytes.subspan(sizeof(Frame));
      const auto length = std::min<std::uint64_t>(frame->length, bytes.size());
      if (frame->kind == dtorch::tcp::FrameKind::farewell) {
        require(frame->length <= dtorch::tcp::kMaxFarewell);
        check_farewell(bytes.first(length), rules.world);
      }
      bytes = bytes.subspan(length);
    }
  } catch (const dtorch::tcp::BrokenFrame&) {
  }
  return 0;
}
