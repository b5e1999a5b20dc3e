#include "cli/outlet.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/signal_block.h"

namespace dtorch {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // somebody else who has it open made it so
      pollfd entry{fd, POLLOUT, 0};
      ::poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

Outlet::Outlet(int fd, std::string name) : fd_(fd), name_(std::move(name)) {
  const AllSignalsBlock block;  // signals are for the thread that watches the job
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::os_resource, fmt::format("cannot start a thread: {}", error.code().message()));
  }
}

Outlet::~Outlet() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Outlet::write(std::string_view text) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ != 0) return;
    queue_.append(text);
  }
  wake_.notify_one();
}

std::size_t Outlet::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + on_its_way_;
}

void Outlet::flush() {
  std::unique_lock lock(mutex_);
  written_.wait(lock, [this] { return queue_.empty() && on_its_way_ == 0; });
}

std::optional<Error> Outlet::failure() const {
  const std::lock_guard lock(mutex_);
  if (error_ == 0 || error_ == EPIPE) return std::nullopt;
  return Error(ErrorKind::cannot_write, errno_text(fmt::format("cannot write to {}", name_), error_));
}

void Outlet::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::string text = std::exchange(queue_, {});
    on_its_way_ = text.size();
    lock.unlock();
    const int error = write_all(fd_, text) ? 0 : errno;
    lock.lock();
    on_its_way_ = 0;
    if (error != 0) {
      error_ = error;
      queue_.clear();
    }
    if (queue_.empty()) written_.notify_all();
  }
}

}  // namespace dtorch
