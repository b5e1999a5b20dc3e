#include "core/launch/oom.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <string_view>

#include "core/base/fd.h"

namespace dtorch {
namespace {

/** The number after `key ` in a file of such lines; 0 where there is none. */
long counter(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  for (long value = 0; file >> name >> value;) {
    if (name == key) return value;
  }
  return 0;
}

std::string group_events_file() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) == 0) return "/sys/fs/cgroup" + line.substr(3) + "/memory.events";
    const std::size_t memory = line.find(":memory:");
    if (memory != std::string::npos)
      return "/sys/fs/cgroup/memory" + line.substr(memory + 8) + "/memory.oom_control";
  }
  return {};
}

/** Whether the kernel's log (readable by root, mostly) says that it killed this process. */
bool in_kernel_log(pid_t pid) {
  const Fd log(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!log.valid()) return false;
  const std::string wanted = fmt::format("Killed process {} ", pid);
  std::array<char, 8192> record{};
  while (true) {
    const ssize_t n = ::read(log.get(), record.data(), record.size());
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: overwritten while we read
    if (n <= 0) return false;
    if (std::string_view(record.data(), static_cast<std::size_t>(n)).find(wanted) != std::string_view::npos)
      return true;
  }
}

}  // namespace

OomWatch::OomWatch()
    : group_events_(group_events_file()),
      group_kills_(counter(group_events_, "oom_kill")),
      system_kills_(counter("/proc/vmstat", "oom_kill")) {}

std::string OomWatch::verdict(pid_t pid) {
  const long group = counter(group_events_, "oom_kill");
  const long system = counter("/proc/vmstat", "oom_kill");
  const bool counted = group > group_kills_ || system > system_kills_;
  group_kills_ = group;
  system_kills_ = system;
  if (!counted) return {};
  return in_kernel_log(pid) ? ", by the kernel's out-of-memory killer"
                            : ", probably by the kernel's out-of-memory killer";
}

}  // namespace dtorch
