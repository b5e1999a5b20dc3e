// A point in time by which a wait must end. Every blocking call of dtorch takes one.
#pragma once
#include <algorithm>
#include <chrono>

namespace dtorch {

using Clock = std::chrono::steady_clock;

/** A moment on the steady clock; copyable, cheap, immutable. */
class Deadline {
 public:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  static Deadline after(std::chrono::nanoseconds wait) {
    const auto now = Clock::now();
    return Deadline(wait > Clock::time_point::max() - now ? Clock::time_point::max() : now + wait);
  }

  Clock::time_point at() const { return at_; }
  bool expired() const { return Clock::now() >= at_; }
  /** Time left, never negative. */
  std::chrono::nanoseconds remaining() const {
    return std::max(std::chrono::nanoseconds(at_ - Clock::now()), {});
  }
  /** Time left for poll(2): milliseconds rounded up, at most one hour (so poll it in a loop). */
  int poll_ms() const {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
    return static_cast<int>(std::min<decltype(ms)>(ms, 3'600'000));
  }

 private:
  Clock::time_point at_;
};

}  // namespace dtorch
