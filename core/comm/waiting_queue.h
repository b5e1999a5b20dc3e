// Runs a group's operations in order on the threads that wait for them, so that a blocking call costs no change of thread.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/comm/backend.h"

namespace dtorch {

/**
 * Operations that nobody waits for begin within about 5 ms on a thread of the queue's, so that communication goes on behind
 * a long computation. An operation that throws fails its own Work and every later one with the same error. Thread-safe.
 */
class WaitingQueue {
 public:
  /** Does the work before the deadline, which is the operation's or the waiter's, whichever is earlier. */
  using Job = std::function<void(Deadline)>;

  /** `missing` tells which ranks the operation under way has not heard of. */
  explicit WaitingQueue(std::function<std::vector<int>()> missing);
  /** Joins the thread: call fail() before, and make sure that the job under way comes to its end. */
  ~WaitingQueue();
  WaitingQueue(const WaitingQueue&) = delete;
  WaitingQueue& operator=(const WaitingQueue&) = delete;

  /** The job is destroyed, with all it owns, before its Work completes. */
  WorkPtr push(Job job, Deadline deadline);
  /** Fails all that has not begun, and all that is pushed later, with this error. The first call counts. */
  void fail(std::exception_ptr error);
  /** Nothing waits and nothing runs. */
  bool idle() const;

 private:
  class WaitedWork;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dtorch
