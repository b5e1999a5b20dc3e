// One rank's end of a group in shared memory: how ranks come together. What they then do is in collectives.h.
#pragma once
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/shm/engine/bootstrap.h"
#include "backends/shm/engine/layout.h"
#include "backends/shm/engine/memory.h"
#include "backends/shm/engine/watch.h"
#include "core/bytes/byte_collectives.h"

namespace dtorch::shm {

/**
 * The steps that collectives are made of. All ranks take the same ones in the same order.
 *
 * A call begins with arrive(): every rank leaves its signature, and small data, in the slot of the call and waits
 * for everyone's. So nobody is more than one call ahead, and two slots are enough.
 *
 * Large data goes through stages, piece by piece: step() counts pieces over all calls. A rank lays its input for
 * a piece into its stage (wrote), and tells when it has used everybody's (done).
 */
class Group {
 public:
  Group(Connection connection, const Layout& layout, std::shared_ptr<std::byte> memory, int rank, int world);

  int rank() const { return rank_; }
  int world() const { return world_; }
  Watch& watch() { return watch_; }
  const Layout& layout() const { return layout_; }
  const std::vector<Fd>& sockets() const { return connection_.sockets; }

  /** Where this rank's data for the next arrive() is written. */
  std::byte* own_data() { return slot(rank_, call_ + 1).data.data(); }
  /** What a rank came with to the call under way. */
  const std::byte* data_of(int rank) const { return slot(rank, call_).data.data(); }
  const CallSignature& signature_of(int rank) const { return slot(rank, call_).signature; }
  /** Begins a call; everyone's data is there afterwards. Does not compare signatures of all_to_all. */
  void arrive(const ByteCall& call);

  enum class Word { wrote, done };
  std::uint32_t step() const { return step_; }
  void advance(std::uint32_t pieces) { step_ += pieces; }
  void publish(Word word, std::uint32_t value) { shm::publish(word_of(word, rank_), value); }
  /** Waits for one rank's word, or for everyone's (kAll), to reach the target. */
  static constexpr int kAll = -1;
  void await(Word word, std::uint32_t target, int source, Deadline deadline);
  std::byte* stage(int rank, std::uint32_t step) const { return memory_.get() + layout_.stage(rank, step); }
  std::byte* result(int rank, std::uint32_t step) const { return memory_.get() + layout_.result(rank, step); }
  Mailbox& mailbox(int from, int to) const;

  /** Ranks that the wait under way still waits for. Any thread. */
  std::vector<int> missing() const;

 private:
  Control& control(int rank) const;
  Slot& slot(int rank, std::uint32_t call) const { return control(rank).slots[call % 2]; }
  shm::Word& word_of(Word word, int rank) const {
    return word == Word::wrote ? control(rank).wrote : control(rank).done;
  }
  shm::Word* awaited(int rank) const;

  Connection connection_;
  const Layout layout_;
  const std::shared_ptr<std::byte> memory_;
  const int rank_;
  const int world_;
  Watch watch_;
  std::uint32_t call_ = 0;
  std::uint32_t step_ = 0;

  // What is waited for, for missing().
  enum class Phase : std::uint8_t { none, arrival, wrote, done };
  std::atomic<Phase> phase_{Phase::none};
  std::atomic<int> source_{kAll};
  std::atomic<std::uint32_t> target_{0};
};

}  // namespace dtorch::shm
