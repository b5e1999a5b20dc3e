// Runs a group's operations in order on a thread of its own, so that communication overlaps with the caller's
// work.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/comm/backend.h"

namespace dtorch {

/** Which ranks an operation still waits for. Written by whoever executes it, read by whoever wants to know.
 * Thread-safe. */
class Progress {
 public:
  void expect(std::vector<int> ranks);
  void arrived(int rank);
  std::vector<int> waiting_for() const;

 private:
  mutable std::mutex mutex_;
  std::vector<int> waiting_;
};

/**
 * One thread and the operations waiting for it. push() from any thread. An operation that throws fails its
 * own Work and, since the group is then in an unknown state, every later one with the same error.
 * Thread-safe.
 */
class WorkQueue {
 public:
  using Job = std::function<void(Progress&)>;

  /** `checkup` is called every 100 ms by whoever waits for Work of this queue: it may wake an operation that
   * waits in vain. */
  explicit WorkQueue(std::function<void()> checkup = {});
  /** Joins the thread: call fail() before, and make sure that the job under way comes to its end. */
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /** The job is destroyed, with all it owns, before its Work completes. `peers`: the ranks it waits for at first. */
  WorkPtr push(Job job, std::vector<int> peers = {});
  /** Fails all that has not begun, and all that is pushed later, with this error. The first call counts. */
  void fail(std::exception_ptr error);
  /** Nothing waits and nothing runs. */
  bool idle() const;

 private:
  class QueuedWork;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtorch
