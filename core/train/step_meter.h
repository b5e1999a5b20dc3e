// Turns the passing of steps into StepRecords, at most ten a second.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

#include "core/base/deadline.h"
#include "core/base/messages.h"

namespace dtorch {

/** Time that a rank has spent blocked so far: in communication, and for data. */
struct WaitingTimes {
  std::chrono::nanoseconds communication{0};
  std::chrono::nanoseconds data{0};
};

/** Resident memory of this process in bytes; 0 when /proc does not tell. */
std::uint64_t resident_memory();

/** Rates since the previous record. Not thread-safe. */
class StepMeter {
 public:
  static constexpr std::chrono::milliseconds kInterval{100};

  /** Forgets what was counted: time between epochs belongs to no step. */
  void restart(Clock::time_point now, const WaitingTimes& waiting);
  /** Counts a finished step of that many samples; whether a record is due. */
  bool count(Clock::time_point now, std::int64_t samples) {
    ++steps_;
    samples_ += samples;
    return now - since_ >= kInterval;
  }
  bool empty() const { return steps_ == 0; }
  /** Fills the rates, shares and memory of a record and begins the next interval. */
  void fill(StepRecord& record, Clock::time_point now, const WaitingTimes& waiting);

 private:
  Clock::time_point since_;
  WaitingTimes waiting_;
  std::int64_t steps_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace dtorch
