#include "backends/tcp/engine/frame.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/bytes/data_type.h"

namespace dtorch::tcp {
namespace {

// Far more than any memory, and small enough that sums of it do not overflow.
constexpr std::uint64_t kMaxData = std::uint64_t{1} << 48;
constexpr std::size_t kMaxRanks = 64;

bool belongs(FrameKind kind, Channel channel) {
  switch (kind) {
    case FrameKind::data:
    case FrameKind::waiting: return channel == Channel::collective;
    case FrameKind::announce:
    case FrameKind::ready:
    case FrameKind::part:
    case FrameKind::farewell: return channel == Channel::direct;
  }
  return false;
}

std::uint64_t longest(FrameKind kind) {
  switch (kind) {
    case FrameKind::data: return kMaxData;
    case FrameKind::part: return kMaxPart;
    case FrameKind::farewell: return kMaxFarewell;
    default: return 0;
  }
}

bool sensible(const CallSignature& signature, int world) {
  return signature.operation <= Operation::recv && signature.reduce >= CallSignature::kNoReduce &&
         signature.reduce <= static_cast<std::int8_t>(ReduceOp::bxor) && signature.count >= 0 &&
         signature.to_peer >= 0 && signature.from_peer >= 0 && signature.root >= -1 &&
         signature.root < world && signature.dtype >= -1 &&
         (signature.dtype == -1 || size_of(static_cast<DataType>(signature.dtype)) > 0);
}

struct FarewellHead {
  std::uint8_t done;
  std::uint8_t kind;
  std::uint16_t ranks;
};

}  // namespace

std::optional<Frame> parse_frame(std::span<const std::byte> bytes, const FrameRules& rules) {
  Frame frame;
  if (bytes.size() >= sizeof frame.magic) {
    std::memcpy(&frame.magic, bytes.data(), sizeof frame.magic);
    if (frame.magic != Frame::kMagic) throw BrokenFrame("something that is no frame");
  }
  if (bytes.size() < sizeof frame) return std::nullopt;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (frame.version != Frame::kVersion) throw BrokenFrame("a frame of another version of dtorch");
  if (frame.token != rules.token) throw BrokenFrame("a frame of another group");
  if (frame.source != rules.source) throw BrokenFrame("a frame of another rank");
  if (!belongs(frame.kind, rules.channel)) throw BrokenFrame("a frame of the wrong kind");
  if (frame.length > longest(frame.kind)) throw BrokenFrame("a frame with an impossible length");
  if (!sensible(frame.signature, rules.world)) throw BrokenFrame("a frame with an impossible signature");
  return frame;
}

std::vector<std::byte> pack(const Farewell& farewell) {
  const auto ranks = std::min(farewell.ranks.size(), kMaxRanks);
  const FarewellHead head{static_cast<std::uint8_t>(farewell.done), static_cast<std::uint8_t>(farewell.kind),
                          static_cast<std::uint16_t>(ranks)};
  const auto text = std::min(farewell.text.size(), kMaxFarewell - sizeof head - ranks * sizeof(std::int32_t));
  std::vector<std::byte> bytes(sizeof head + ranks * sizeof(std::int32_t) + text);
  std::byte* to = bytes.data();
  std::memcpy(to, &head, sizeof head);
  to += sizeof head;
  for (std::size_t i = 0; i < ranks; ++i) {
    const std::int32_t rank = farewell.ranks[i];
    std::memcpy(to, &rank, sizeof rank);
    to += sizeof rank;
  }
  if (text > 0) std::memcpy(to, farewell.text.data(), text);
  return bytes;
}

Farewell parse_farewell(std::span<const std::byte> bytes, int world) {
  FarewellHead head;
  if (bytes.size() < sizeof head) throw BrokenFrame("a farewell that is cut off");
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes = bytes.subspan(sizeof head);
  if (head.kind > static_cast<std::uint8_t>(ErrorKind::timeout) || head.ranks > kMaxRanks ||
      bytes.size() < head.ranks * sizeof(std::int32_t)) {
    throw BrokenFrame("a farewell that makes no sense");
  }
  Farewell farewell{head.done != 0, static_cast<ErrorKind>(head.kind), {}, {}};
  for (std::size_t i = 0; i < head.ranks; ++i) {
    std::int32_t rank = 0;
    std::memcpy(&rank, bytes.data(), sizeof rank);
    bytes = bytes.subspan(sizeof rank);
    if (rank < 0 || rank >= world) throw BrokenFrame("a farewell that names no rank");
    farewell.ranks.push_back(rank);
  }
  farewell.text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return farewell;
}

}  // namespace dtorch::tcp
