#include "core/launch/event_loop.h"

#include <poll.h>

#include <utility>
#include <vector>

namespace dtorch {

void EventLoop::watch(int fd, std::function<void()> on_readable) { callbacks_[fd] = std::move(on_readable); }

void EventLoop::forget(int fd) { callbacks_.erase(fd); }

void EventLoop::wait(Deadline deadline) {
  std::vector<pollfd> entries;
  entries.reserve(callbacks_.size());
  for (const auto& [fd, callback] : callbacks_) entries.push_back({fd, POLLIN, 0});
  if (::poll(entries.data(), entries.size(), deadline.poll_ms()) <= 0) return;
  for (const pollfd& entry : entries) {
    if (entry.revents == 0) continue;
    const auto found = callbacks_.find(entry.fd);
    if (found == callbacks_.end()) continue;  // forgotten by an earlier callback
    const auto callback = found->second;      // a copy: it may forget itself
    callback();
  }
}

}  // namespace dtorch
