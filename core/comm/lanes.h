// The order of point-to-point messages: those between the same two ranks with the same tag follow each other, others do not
// wait for each other.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "core/bytes/signature.h"
#include "core/comm/work_queue.h"

namespace dtorch {

/** A WorkQueue for each peer, direction and tag. Thread-safe. */
class Lanes {
 public:
  /** `checkup` as WorkQueue's. */
  explicit Lanes(std::function<void()> checkup = {}) : checkup_(std::move(checkup)) {}

  /** `direction` is send or recv. */
  WorkPtr push(int peer, Operation direction, int tag, WorkQueue::Job job);
  /** Fails all that has not begun, and all that is pushed later, with this error. The first call counts. */
  void fail(const std::exception_ptr& error);
  /** Nothing waits and nothing runs. */
  bool idle();
  /** Ends all lanes; what is under way must have been woken. */
  void close();

 private:
  using Key = std::tuple<int, Operation, int>;

  const std::function<void()> checkup_;
  std::mutex mutex_;
  std::exception_ptr failed_;                        // guarded by mutex_
  std::map<Key, std::unique_ptr<WorkQueue>> lanes_;  // guarded by mutex_
};

}  // namespace dtorch
