#include "core/launch/stopped_watch.h"

#include <algorithm>
#include <utility>

#include "core/launch/explain.h"

namespace dtorch {
namespace {

/** Between two ticks of a process that runs, however busy its machine is. */
constexpr std::chrono::seconds kLongestPause(1);

}  // namespace

void AwakeClock::tick() {
  const auto now = Clock::now();
  awake_ += std::min<Clock::duration>(now - std::exchange(last_, now), kLongestPause);
}

std::chrono::milliseconds StoppedWatch::stopped_for(pid_t pid, std::chrono::milliseconds now) {
  if (process_state(pid) != 'T') {
    since_.erase(pid);
    return {};
  }
  return now - since_.emplace(pid, now).first->second;
}

}  // namespace dtorch
