// Whether the kernel's out-of-memory killer was at work.
#pragma once
#include <sys/types.h>

#include <string>

namespace dtorch {

/** Counts the kernel's out-of-memory kills from construction on; reads /proc and the control group, never blocks. */
class OomWatch {
 public:
  OomWatch();
  /**
   * What is known of a process that SIGKILL ended: ", by the kernel's out-of-memory killer" where the kernel's log names
   * the pid, ", probably by ..." where only the counters moved since the last call, else "".
   */
  std::string verdict(pid_t pid);

 private:
  std::string group_events_;  ///< memory.events of this process's control group, may be missing
  long group_kills_ = 0;
  long system_kills_ = 0;
};

}  // namespace dtorch
