#include "core/base/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string_view>

namespace dtorch {
namespace {

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

/** The file's number; kNone for "max", or where there is no such file. */
std::uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = kNone;
  return file >> value ? value : kNone;
}

/** The least limit that GROUP and the groups around it set in FILE, below MOUNT. */
std::uint64_t group_limit(const std::string& mount, std::string group, std::string_view file) {
  std::uint64_t least = kNone;
  while (true) {
    least = std::min(least, number_in(mount + group + "/" + std::string(file)));
    if (group.empty() || group == "/") return least;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

std::uint64_t groups_limit(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::uint64_t least = kNone;
  for (std::string line; std::getline(file, line);) {
    const std::size_t memory = line.find(":memory:");
    if (line.rfind("0::", 0) == 0) {
      least = std::min(least, group_limit(root + "/sys/fs/cgroup", line.substr(3), "memory.max"));
    } else if (memory != std::string::npos) {
      least = std::min(least, group_limit(root + "/sys/fs/cgroup/memory", line.substr(memory + 8),
                                          "memory.limit_in_bytes"));
    }
  }
  return least;
}

std::uint64_t machine_memory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::uint64_t bytes = 0;
  std::string name;
  std::uint64_t kib = 0;
  for (std::string line; file >> name >> kib && std::getline(file, line);) {
    if (name == "MemTotal:" || name == "SwapTotal:") bytes += kib * 1024;
  }
  return bytes;
}

}  // namespace

std::uint64_t memory_limit(const std::string& root) {
  const std::uint64_t machine = machine_memory(root);
  const std::uint64_t groups = groups_limit(root);
  if (machine == 0) return groups == kNone ? 0 : groups;
  return std::min(machine, groups);
}

}  // namespace dtorch
