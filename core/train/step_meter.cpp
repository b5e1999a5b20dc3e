#include "core/train/step_meter.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace dtorch {

std::uint64_t resident_memory() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total = 0, resident = 0;
  if (!(statm >> total >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void StepMeter::restart(Clock::time_point now, const WaitingTimes& waiting) {
  since_ = now;
  waiting_ = waiting;
  steps_ = 0;
  samples_ = 0;
}

void StepMeter::fill(StepRecord& record, Clock::time_point now, const WaitingTimes& waiting) {
  using Seconds = std::chrono::duration<double>;
  const double elapsed = std::max(Seconds(now - since_).count(), 1e-9);
  const auto share = [&](std::chrono::nanoseconds part) {
    return std::clamp(Seconds(part).count() / elapsed, 0.0, 1.0);
  };
  record.samples_per_s = static_cast<double>(samples_) / elapsed;
  record.step_ms = elapsed * 1e3 / static_cast<double>(std::max<std::int64_t>(steps_, 1));
  record.comm_share = share(waiting.communication - waiting_.communication);
  record.data_share = share(waiting.data - waiting_.data);
  record.compute_ms = record.step_ms * std::max(0.0, 1 - record.comm_share - record.data_share);
  record.memory_bytes = resident_memory();
  restart(now, waiting);
}

}  // namespace dtorch
