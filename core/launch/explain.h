// The words of a job's report.
#pragma once
#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/base/messages.h"
#include "core/launch/spawn.h"

namespace dtorch {

/** "rank 1 (pid 7) was killed by SIGKILL", or "... exited with code 3". */
std::string exit_message(int rank, pid_t pid, const ExitStatus& status);

/** The failure that stands for a stop on request (kind interrupted, with the signal). */
Failure interrupted_failure(int signal, const std::string& host, const std::string& how);

/** The message in a file of torch.distributed.elastic's form; empty if there is none. */
std::string read_error_file(const std::string& path);

/** The lines of a rank's answer to "dump": its collectives and its stack. */
std::vector<std::string> dump_lines(const nlohmann::json& message);

/** A process's state as /proc shows it: R, S, D (waits for a device, cannot be killed), T (stopped), t (by a debugger), Z (has
 * ended); '?' where it cannot be read. */
char process_state(pid_t pid);
/** Whether a process is stopped by a signal or a debugger. */
bool is_stopped(pid_t pid);
/** What keeps a process that was killed. */
std::string why_it_stays(pid_t pid);

}  // namespace dtorch
