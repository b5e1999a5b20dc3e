// Ctrl-C and its relatives, as something a poll loop can read.
#pragma once
#include <csignal>
#include <vector>

#include "core/base/fd.h"

namespace dtorch {

/** Whether a signal is a request to stop: SIGINT, SIGTERM or SIGHUP. */
bool asks_to_stop(int signal);

/** While it lives, SIGINT, SIGTERM and SIGHUP do not interrupt this thread but are read here. Make it before any thread. */
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return fd_.get(); }
  /** The signals that came since the last call, in order; never blocks. */
  std::vector<int> take();

 private:
  Fd fd_;
  sigset_t previous_{};
};

}  // namespace dtorch
