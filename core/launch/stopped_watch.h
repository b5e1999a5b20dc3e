// Processes that stand still because somebody stopped them (kill -STOP), and for how long.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <map>

#include "core/base/deadline.h"

namespace dtorch {

/** Time that this process was awake: while it was stopped itself (Ctrl-Z, a suspended machine) its clock stands still. */
class AwakeClock {
 public:
  /** To be called several times a second. */
  void tick();
  std::chrono::milliseconds now() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(awake_);
  }

 private:
  Clock::time_point last_ = Clock::now();
  Clock::duration awake_{};
};

/** Remembers since when processes have been seen stopped by a signal; a debugger's stop is its user's business. */
class StoppedWatch {
 public:
  /** Looks at a process at the time `now`; how long it has been stopped, zero if it is not. */
  std::chrono::milliseconds stopped_for(pid_t pid, std::chrono::milliseconds now);

 private:
  std::map<pid_t, std::chrono::milliseconds> since_;
};

}  // namespace dtorch
