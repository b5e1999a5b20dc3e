// Waiting for other ranks, and noticing that they will never come.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/shm/engine/layout.h"
#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "core/bytes/peer_error.h"

namespace dtorch::shm {

/** Raises a word, whose writer the caller is, and wakes those who sleep for it. */
void publish(Word& word, std::uint32_t value);
/** Wakes all who sleep for it, so that they look around. */
void wake(Word& word);

/** Whether a counter that wraps has come to a target. */
inline bool reached(std::uint32_t value, std::uint32_t target) {
  return static_cast<std::int32_t>(value - target) >= 0;
}

/** The other ranks as one of them sees them. Any thread. */
class Watch {
 public:
  /** lifelines[r]: the read end of a pipe whose other end is rank r's alone, and so closed when r is gone. */
  Watch(int rank, std::vector<Fd> lifelines, std::function<Control&(int)> control);

  /**
   * Returns once ready(word's value). Spins for a while, then sleeps in slices. Throws PeerError: lost when this
   * group was aborted, a peer aborted it or found another one gone, or `peer`, whom the word is up to, is gone;
   * timeout with the ranks that `missing` names.
   */
  template <typename Ready, typename Missing>
  void wait(Word& word, int peer, Deadline deadline, Ready ready, Missing missing) {
    for (int round = 0;; ++round) {
      if (ready(word.value.load(std::memory_order_acquire))) return;
      if (round == 0 && spins_ && spin(word, ready)) return;
      const auto trouble = look_around(peer);
      const auto seen = word.value.load(std::memory_order_acquire);
      if (ready(seen)) return;  // it may have come before it went
      if (trouble) throw PeerError(*trouble);
      if (deadline.expired()) throw late(missing());
      sleep(word, seen, deadline);
    }
  }

  /** Makes every wait of this rank fail, and tells the peers. */
  void abort(const std::string& reason);
  /** Throws the abort's reason if there was one, this rank's or a peer's. */
  void check() const;
  /** Tells the peers that this rank found another gone. */
  void report_lost(int culprit);

 private:
  template <typename Ready>
  bool spin(const Word& word, Ready ready) const {
    const auto end = Clock::now() + kSpin;
    do {
      for (int i = 0; i < 64; ++i) {
        pause();
        if (ready(word.value.load(std::memory_order_acquire))) return true;
      }
    } while (Clock::now() < end);
    return false;
  }
  static void pause();
  void sleep(Word& word, std::uint32_t seen, Deadline deadline);
  static PeerError late(const std::vector<int>& ranks);
  std::optional<PeerError> told() const;
  std::optional<PeerError> look_around(int peer) const;
  bool is_gone(int peer) const;

  static constexpr auto kSpin = std::chrono::microseconds(100);
  const int rank_;
  const std::vector<Fd> lifelines_;
  const std::function<Control&(int)> control_;
  const bool spins_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;           // guarded by mutex_
  std::vector<Word*> sleeping_;  // what this rank's threads sleep for; guarded by mutex_
};

}  // namespace dtorch::shm
