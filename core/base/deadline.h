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
  /** Of any unit; a time that the clock cannot count to never comes. */
  template <typename Rep, typename Period>
  static Deadline after(std::chrono::duration<Rep, Period> wait) {
    return Deadline(Clock::now()).later(wait);
  }

  /** By so much later, or never. */
  template <typename Rep, typename Period>
  Deadline later(std::chrono::duration<Rep, Period> more) const {
    // As floating-point numbers, which do not overflow; what lies near the limit is centuries away.
    using Seconds = std::chrono::duration<double>;
    if (Seconds(more) >= Seconds(Clock::time_point::max() - at_)) return Deadline(Clock::time_point::max());
    if (Seconds(more) <= -Seconds(at_.time_since_epoch())) return Deadline(Clock::time_point{});
    return Deadline(at_ + std::chrono::duration_cast<Clock::duration>(more));
  }

  Clock::time_point at() const { return at_; }
  bool expired() const { return Clock::now() >= at_; }
  /** Time left, never negative. */
  std::chrono::nanoseconds remaining() const {
    return std::max(std::chrono::nanoseconds(at_ - Clock::now()), {});
  }
  /** Time left for libraries that add it to a clock of theirs: milliseconds rounded up, from 1 ms to a year. */
  std::chrono::milliseconds remaining_ms() const {
    using std::chrono::milliseconds;
    return std::clamp<milliseconds>(std::chrono::ceil<milliseconds>(remaining()), milliseconds(1),
                                    std::chrono::hours(24 * 365));
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
