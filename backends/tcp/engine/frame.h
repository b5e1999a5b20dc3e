// What travels between ranks: a header of fixed size, then `length` bytes. Checked here before anything of it is used.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/error.h"
#include "core/bytes/signature.h"

namespace dtorch::tcp {

enum class FrameKind : std::uint8_t {
  data,      ///< collectives: the payload of one step
  waiting,   ///< collectives: "this is what I wait for you in", so that two ranks that both wait can disagree
  announce,  ///< a send has begun
  ready,     ///< its recv too: the receiver's view of it
  part,      ///< a piece of its data
  farewell,  ///< why this rank leaves the group
};
/** The two connections of a pair of ranks. */
enum class Channel : std::uint8_t { collective, direct };

struct Frame {
  static constexpr std::uint32_t kMagic = 0x70637464;  // "dtcp"
  static constexpr std::uint8_t kVersion = 1;

  std::uint32_t magic = kMagic;
  std::uint8_t version = kVersion;
  FrameKind kind = FrameKind::data;
  std::uint16_t reserved = 0;
  std::uint64_t token = 0;   ///< the group's
  std::uint64_t number = 0;  ///< collectives begun by the sender
  std::uint64_t length = 0;  ///< bytes that follow
  std::int32_t tag = 0;      ///< of a send and its recv
  std::int32_t source = 0;   ///< the sender's rank
  CallSignature signature;
};
static_assert(std::is_trivially_copyable_v<Frame> && sizeof(Frame) == 88);

constexpr std::size_t kMaxPart = 256 << 10;
constexpr std::size_t kMaxFarewell = 4096;

/** What a connection may carry. */
struct FrameRules {
  std::uint64_t token = 0;
  int source = 0;
  int world = 0;
  Channel channel = Channel::collective;
};

/** Bytes that are no frame of this group. */
class BrokenFrame : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/** The frame whose header begins `bytes`; nothing if more bytes are needed to tell. Throws BrokenFrame. */
std::optional<Frame> parse_frame(std::span<const std::byte> bytes, const FrameRules& rules);

/** The last frame of a rank. */
struct Farewell {
  bool done = false;  ///< it left in peace; else what follows is its reason
  ErrorKind kind = ErrorKind::lost;
  std::vector<int> ranks;
  std::string text;
};
/** At most kMaxFarewell bytes: long texts are cut. */
std::vector<std::byte> pack(const Farewell& farewell);
/** Throws BrokenFrame. */
Farewell parse_farewell(std::span<const std::byte> bytes, int world);

}  // namespace dtorch::tcp
