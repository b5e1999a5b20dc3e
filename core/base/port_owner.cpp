#include "core/base/port_owner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

namespace dtorch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListening = "0A";

/** Inodes of the sockets that listen on the port, from one of the kernel's tables. */
void collect_listeners(const char* table, int port, std::set<std::uint64_t>& inodes) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skip;
    std::uint64_t inode = 0;
    fields >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    const auto colon = local.rfind(':');
    if (!fields || state != kListening || colon == std::string::npos) continue;
    if (std::strtol(local.c_str() + colon + 1, nullptr, 16) == port) inodes.insert(inode);
  }
}

bool holds_any(const fs::path& process, const std::set<std::uint64_t>& inodes) {
  std::error_code error;
  for (fs::directory_iterator it(process / "fd", error), end; !error && it != end; it.increment(error)) {
    std::array<char, 64> target{};
    const auto length = ::readlink(it->path().c_str(), target.data(), target.size() - 1);
    unsigned long inode = 0;
    if (length > 0 && std::sscanf(target.data(), "socket:[%lu]", &inode) == 1 && inodes.count(inode) != 0)
      return true;
  }
  return false;
}

}  // namespace

std::string port_owner(int port) {
  std::set<std::uint64_t> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) collect_listeners(table, port, inodes);
  if (inodes.empty()) return "";
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const auto pid = it->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos || !holds_any(it->path(), inodes)) continue;
    std::string name;
    std::getline(std::ifstream(it->path() / "comm"), name);
    return fmt::format("{} (pid {})", name.empty() ? "a process" : name, pid);
  }
  return "";
}

}  // namespace dtorch
