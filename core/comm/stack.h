// What another thread of this process is doing, for a dump on a stall.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace dtorch {

/**
 * The call stack of a thread, innermost first, one line a frame: "dtorch::ProcessGroup::barrier() + 0x1f
 * (libdtorch.so)". Interrupts the thread with SIGURG, whose handler it takes over for as long as it lasts. A
 * thread that does not answer within `limit` (stopped, or with the signal blocked) gives one line that says
 * so. Any thread; calls queue up.
 */
std::vector<std::string> capture_stack(pid_t thread,
                                       std::chrono::milliseconds limit = std::chrono::milliseconds(200));

}  // namespace dtorch
