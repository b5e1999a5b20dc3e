#include "core/comm/lanes.h"

#include <algorithm>

namespace dtorch {

WorkPtr Lanes::push(int peer, Operation direction, int tag, WorkQueue::Job job) {
  const Key key{peer, direction, tag};
  const std::lock_guard lock(mutex_);
  auto lane = lanes_.find(key);
  if (lane == lanes_.end()) {
    // Programs that number their messages would otherwise gather a thread for each tag.
    std::erase_if(lanes_, [](const auto& entry) { return entry.second->idle(); });
    lane = lanes_.emplace(key, std::make_unique<WorkQueue>(checkup_)).first;
    if (failed_) lane->second->fail(failed_);
  }
  return lane->second->push(std::move(job), {peer});
}

void Lanes::fail(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!failed_) failed_ = error;
  for (const auto& [key, lane] : lanes_) lane->fail(error);
}

bool Lanes::idle() {
  const std::lock_guard lock(mutex_);
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& entry) { return entry.second->idle(); });
}

void Lanes::close() {
  // Their last words may need the lock, so they are joined without it.
  std::map<Key, std::unique_ptr<WorkQueue>> lanes;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  lanes.swap(lanes_);
}

}  // namespace dtorch
