#include "backends/tcp/engine/fate.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace dtorch::tcp {

Fate::Fate() : bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!bell_.valid()) throw Error(ErrorKind::os_resource, errno_text("eventfd", errno));
}

void Fate::check() const {
  if (!failed()) return;
  const std::lock_guard lock(mutex_);
  throw PeerError(*first_);
}

bool Fate::fail(const PeerError& error) {
  const std::lock_guard lock(mutex_);
  if (first_) return false;
  first_ = error;
  failed_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  // It can only fail if the counter is full, which would ring as well.
  [[maybe_unused]] const auto written = ::write(bell_.get(), &one, sizeof one);
  return true;
}

}  // namespace dtorch::tcp
