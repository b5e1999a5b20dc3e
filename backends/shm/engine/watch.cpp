#include "backends/shm/engine/watch.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <utility>

#include "core/base/host.h"

namespace dtorch::shm {
namespace {

/** Between two looks at the clock, the peers and the abort flag. */
constexpr auto kSlice = std::chrono::milliseconds(50);

// Values of Control::failure; from kLost on: kLost + the rank that was found gone.
constexpr std::uint32_t kAborted = 1;
constexpr std::uint32_t kLost = 2;

std::string join(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, ", ")); }

}  // namespace

void publish(Word& word, std::uint32_t value) {
  // Sequentially consistent, as is the sleeper's count: either it sees the value or it is seen here.
  word.value.store(value, std::memory_order_seq_cst);
  if (word.sleepers.load(std::memory_order_seq_cst) != 0) wake(word);
}

void wake(Word& word) { ::syscall(SYS_futex, &word.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

Watch::Watch(int rank, std::vector<Fd> lifelines, std::function<Control&(int)> control)
    : rank_(rank),
      lifelines_(std::move(lifelines)),
      control_(std::move(control)),
      spins_(static_cast<int>(lifelines_.size()) <= usable_cores()) {}

void Watch::pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Watch::sleep(Word& word, std::uint32_t seen, Deadline deadline) {
  const auto left = std::min<std::chrono::nanoseconds>(deadline.remaining(), kSlice);
  const timespec time{0, static_cast<long>(left.count())};
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    sleeping_.push_back(&word);
  }
  word.sleepers.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &word.value, FUTEX_WAIT, seen, &time, nullptr, 0);
  word.sleepers.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  sleeping_.erase(std::find(sleeping_.begin(), sleeping_.end(), &word));
}

PeerError Watch::late(const std::vector<int>& ranks) {
  return {ErrorKind::timeout,
          fmt::format("the deadline passed while waiting for rank{} {} in shared memory",
                      ranks.size() == 1 ? "" : "s", join(ranks)),
          ranks};
}

bool Watch::is_gone(int peer) const {
  const auto& lifeline = lifelines_[static_cast<std::size_t>(peer)];
  if (!lifeline.valid()) return false;
  pollfd entry{lifeline.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & POLLHUP) != 0;
}

std::optional<PeerError> Watch::told() const {
  const int world = static_cast<int>(lifelines_.size());
  for (int other = 0; other < world; ++other) {
    if (other == rank_) continue;
    const auto failure = control_(other).failure.load(std::memory_order_acquire);
    if (failure == kAborted)
      return PeerError(ErrorKind::lost, fmt::format("rank {} aborted the group", other), {other});
    if (failure >= kLost && failure < kLost + static_cast<std::uint32_t>(world)) {
      const int culprit = static_cast<int>(failure - kLost);
      return PeerError(ErrorKind::lost, fmt::format("rank {} is gone, as rank {} found", culprit, other),
                       {culprit});
    }
  }
  return std::nullopt;
}

std::optional<PeerError> Watch::look_around(int peer) const {
  if (aborted_) {
    const std::lock_guard lock(mutex_);
    return PeerError(ErrorKind::lost, reason_);
  }
  if (auto failure = told()) return failure;
  if (is_gone(peer)) return PeerError(ErrorKind::lost, fmt::format("rank {} is gone", peer), {peer});
  return std::nullopt;
}

void Watch::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    reason_ = reason;
    aborted_ = true;
    for (Word* word : sleeping_) wake(*word);
  }
  control_(rank_).failure.store(kAborted, std::memory_order_release);
  for (int other = 0; other < static_cast<int>(lifelines_.size()); ++other) {
    Control& control = control_(other);
    for (auto& slot : control.slots) wake(slot.arrived);
    wake(control.wrote);
    wake(control.done);
  }
}

void Watch::check() const {
  // A late rank would find everyone's data there, and yet the group has failed.
  if (const auto failure = aborted_ ? std::nullopt : told()) throw PeerError(*failure);
  if (!aborted_) return;
  const std::lock_guard lock(mutex_);
  throw PeerError(ErrorKind::lost, reason_);
}

void Watch::report_lost(int culprit) {
  std::uint32_t none = 0;
  control_(rank_).failure.compare_exchange_strong(none, kLost + static_cast<std::uint32_t>(culprit));
}

}  // namespace dtorch::shm
