// What lies where in the memory that the ranks of a group share. It starts as zeros.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "backends/shm/engine/engine.h"
#include "core/bytes/signature.h"

namespace dtorch::shm {

/** Data up to here travels in one step, beside the flag that announces it. */
inline constexpr std::size_t kSmall = 4096;
/** A rank's input moves in pieces of this size: large enough to hide a wait, small enough to stay in a cache. */
inline constexpr std::size_t kChunk = std::size_t{256} * 1024;
/** Pieces under way: a rank may be copying in the third while another still copies out the first. */
inline constexpr std::uint32_t kStages = 4;
inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kPage = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

/** A number that one rank raises and others wait for; zero at first, wraps. */
struct Word {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> sleepers;  ///< who wants a wake-up
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(Word) == 8);

/** How a rank comes to a call: with 8 bytes of data all of it is one cache line. */
struct alignas(kLine) Slot {
  Word arrived;  ///< number of the call
  CallSignature signature;
  std::array<std::byte, kSmall + 72> data;
};
static_assert(sizeof(Slot) % kLine == 0 && offsetof(Slot, data) == 56);

/** What a rank has to say; written by that rank only. */
struct alignas(kPage) Control {
  std::array<Slot, 2> slots;  ///< of even and odd calls: no rank is more than one call ahead of another
  alignas(kLine) Word wrote;  ///< pieces of input that lie in its stage
  alignas(kLine) Word done;   ///< pieces of everyone's input that it has used
  alignas(kLine) std::atomic<std::uint32_t> failure;  ///< see watch.h
};

enum MailState : std::uint32_t { kFree, kClaimed, kPosted, kMatched };

/** One message from one rank to another. */
struct alignas(kLine) Mail {
  static constexpr std::size_t kPiece = std::size_t{32} * 1024;

  Word state;    ///< a MailState
  Word written;  ///< pieces that the sender has laid down
  Word read;     ///< pieces that the receiver has taken
  std::atomic<std::int32_t> tag;
  alignas(kLine) CallSignature sender;
  alignas(kLine) CallSignature receiver;
  alignas(kLine) std::array<std::array<std::byte, kPiece>, 2> data;
};

/** Messages under way from one rank to another: as many tags at a time as there are places. */
struct alignas(kPage) Mailbox {
  Word posts;  ///< messages posted ever
  std::array<Mail, 16> mails;
};

/** Offsets for a world. */
class Layout {
 public:
  explicit Layout(int world) : world_(static_cast<std::size_t>(world)) {}

  /** What a rank reduces of a piece, in bytes: its share, in whole cache lines. */
  std::size_t share() const { return round_up((kChunk + world_ - 1) / world_, kLine); }
  /** The part of a stage that is for one peer. */
  std::size_t lane() const { return kChunk / world_ / kLine * kLine; }

  std::size_t control(int rank) const { return static_cast<std::size_t>(rank) * sizeof(Control); }
  std::size_t stage(int rank, std::uint32_t step) const { return stages() + index(rank, step) * kChunk; }
  std::size_t result(int rank, std::uint32_t step) const { return results() + index(rank, step) * share(); }
  std::size_t mailbox(int from, int to) const {
    const std::size_t pair = static_cast<std::size_t>(from) * world_ + static_cast<std::size_t>(to);
    return reserved() + pair * sizeof(Mailbox);
  }
  /** Used by every group; mailboxes take memory as they are used. */
  std::size_t reserved() const { return round_up(results() + world_ * kStages * share(), kPage); }
  std::size_t total() const { return reserved() + world_ * world_ * sizeof(Mailbox); }

 private:
  std::size_t index(int rank, std::uint32_t step) const {
    return static_cast<std::size_t>(rank) * kStages + step % kStages;
  }
  std::size_t stages() const { return world_ * sizeof(Control); }
  std::size_t results() const { return stages() + world_ * kStages * kChunk; }

  std::size_t world_;
};

}  // namespace dtorch::shm
