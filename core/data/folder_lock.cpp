#include "core/data/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/base/host.h"
#include "core/base/log.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLockName = ".dtorch.lock";
constexpr auto kPollInterval = 100ms;

std::string holder(const Fd& file) {
  std::array<char, 300> text{};
  const auto got = ::pread(file.get(), text.data(), text.size() - 1, 0);
  return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : std::string("another process");
}

// False while another process holds it.
bool take_lock(const Fd& file, const std::string& path) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK || errno == EINTR) return false;
  throw Error(ErrorKind::os_resource, fmt::format("{}: {}", path, errno_text("flock", errno)));
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& purpose,
                       const std::function<std::uint64_t()>& progress, std::chrono::milliseconds patience) {
  const auto path = folder + "/" + kLockName;
  file_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_.valid())
    throw Error(ErrorKind::cannot_create, fmt::format("{}: {}", path, errno_text("open", errno)));
  auto deadline = Deadline::after(patience);
  auto before = progress();
  bool told = false;
  while (!take_lock(file_, path)) {
    std::this_thread::sleep_for(kPollInterval);
    if (!told) log_info(fmt::format("{} {}: waiting for it", holder(file_), purpose));
    told = true;
    if (const auto now = progress(); now != before) {
      before = now;
      deadline = Deadline::after(patience);
    }
    if (deadline.expired()) {
      throw Error(ErrorKind::timeout,
                  fmt::format("{} {} and has not got on for {} s", holder(file_), purpose,
                              std::chrono::duration_cast<std::chrono::seconds>(patience).count()),
                  fmt::format("If that process hangs, end it; its lock on {} goes with it.", path));
    }
  }
  // For the message of whoever waits; not being able to leave it harms nobody.
  const auto text = fmt::format("process {} on {}", ::getpid(), host_name());
  if (::ftruncate(file_.get(), 0) != 0 || ::pwrite(file_.get(), text.data(), text.size(), 0) < 0) return;
}

}  // namespace dtorch
