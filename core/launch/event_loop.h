// A small poll(2) loop.
#pragma once
#include <functional>
#include <map>

#include "core/base/deadline.h"

namespace dtorch {

/** Calls a function when its descriptor is readable (or hung up). One thread; callbacks may watch and forget. */
class EventLoop {
 public:
  void watch(int fd, std::function<void()> on_readable);
  void forget(int fd);
  /** Waits until something is readable or the deadline passes, then calls every ready descriptor's function once. */
  void wait(Deadline deadline);

 private:
  std::map<int, std::function<void()>> callbacks_;
};

}  // namespace dtorch
