// Keeps a signal from the calling thread, and from the threads that it starts meanwhile.
#pragma once
#include <csignal>

namespace dtorch {

/** Blocks one signal in this thread until destroyed. */
class SignalBlock {
 public:
  explicit SignalBlock(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace dtorch
