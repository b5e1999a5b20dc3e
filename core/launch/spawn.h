// Starting a child process and waiting for it.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/base/fd.h"

namespace dtorch {

/** How a process ended: an exit code, or the signal that killed it. */
struct ExitStatus {
  int code = 0;  ///< meaningful when signal is 0
  int signal = 0;
  /** What a shell would report: the code, or 128 + signal. */
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
};

/** A child of this process, leader of its own process group. Move-only; the destructor neither kills nor waits. */
class ChildProcess {
 public:
  ChildProcess() = default;
  ChildProcess(pid_t pid, Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid() const { return pid_; }
  /** Becomes readable when the process has ended. */
  int pidfd() const { return pidfd_.get(); }
  bool running() const { return pid_ > 0 && !status_; }
  /** Reaps the process if it has ended, without blocking. */
  std::optional<ExitStatus> try_wait();
  /** Sends a signal to the process, or to its whole group. Nothing happens when it has been reaped. */
  void signal(int number) const;
  /** Also reaches members that outlived the leader. */
  void signal_group(int number) const;
  /**
   * Whether members are left. Once the leader has been reaped and none is, the number may become another group's: ask from
   * time to time, so that it is noticed before; the group is never signalled again.
   */
  bool group_exists() const;

 private:
  pid_t pid_ = -1;
  Fd pidfd_;
  std::optional<ExitStatus> status_;
  mutable bool group_gone_ = false;  ///< as far as anybody has asked
};

struct SpawnRequest {
  std::string program;                   ///< a path; see find_program
  std::vector<std::string> arguments;    ///< argv, the program's name first
  std::vector<std::string> environment;  ///< "NAME=value", all of it
  int stdout_fd = -1;                    ///< -1: this process's
  int stderr_fd = -1;
  std::vector<int> inherit;     ///< descriptors that stay open, under their numbers
  std::vector<int> cores;       ///< CPU affinity; empty: this process's
  bool die_with_parent = true;  ///< SIGKILL when the calling thread ends (it must be the main thread)
};

/**
 * Starts a program in a process group of its own, standard input from /dev/null, default signal handling. Returns once the
 * program's image runs. Throws Error(usage) when it cannot be executed, Error(os_resource) when the system is out of processes.
 */
ChildProcess spawn(const SpawnRequest& request);

/** What a shell would run for a name. */
struct ProgramPath {
  std::string path;     ///< empty: nothing
  int code = 0;         ///< what a shell exits with where it cannot: 127 not found, 126 not to be executed
  std::string problem;  ///< "no such program", "it is a directory", ...
};

/** Looks a program up, in PATH if its name has no slash. */
ProgramPath look_up_program(const std::string& name);
/** Its path; nothing if there is none. */
std::optional<std::string> find_program(const std::string& name);

/** "SIGKILL", or "signal 42" where there is no name. */
std::string signal_name(int number);

}  // namespace dtorch
