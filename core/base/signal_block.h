// Keeps a signal from the calling thread, and from the threads that it starts meanwhile.
#pragma once
#include <csignal>
#include <ctime>

namespace dtorch {

/** Keeps every signal from the threads that are started in its life: signals are for the main thread. */
class AllSignalsBlock {
 public:
  AllSignalsBlock() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlock(const AllSignalsBlock&) = delete;
  AllSignalsBlock& operator=(const AllSignalsBlock&) = delete;

 private:
  sigset_t before_{};
};

/** Blocks one signal in this thread until destroyed. One that this thread caused meanwhile (SIGPIPE, by writing) is
 * dropped: let through in the end, it would end the process after all. */
class SignalBlock {
 public:
  explicit SignalBlock(int signal) {
    sigemptyset(&set_);
    sigaddset(&set_, signal);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, signal) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~SignalBlock() {
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&set_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t set_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace dtorch
