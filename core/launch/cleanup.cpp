#include "core/launch/cleanup.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <thread>

#include "core/base/host.h"
#include "core/launch/output.h"

namespace dtorch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kKillTime(2);
constexpr std::chrono::milliseconds kHelperTime(1'500);

bool carries(const fs::path& process, const std::string& wanted) {
  std::ifstream file(process / "environ", std::ios::binary);
  const std::string environment((std::istreambuf_iterator<char>(file)), {});
  const std::size_t at = environment.find(wanted);
  if (at == std::string::npos || (at != 0 && environment[at - 1] != '\0')) return false;
  const char next = at + wanted.size() < environment.size() ? environment[at + wanted.size()] : '\0';
  return next == '\0' || next == '/';  // '/': a job that a rank of this job started
}

/** Calls `visit(pid, folder)` for every process that /proc shows. */
template <class Visit>
void for_each_process(const Visit& visit) {
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    pid_t pid = 0;
    const auto [rest, problem] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (problem == std::errc() && rest == name.data() + name.size()) visit(pid, it->path());
  }
}

/** Whether the process runs in one of the groups; one that is dead but not reaped yet does not. */
bool runs_in(const fs::path& process, const std::set<pid_t>& groups) {
  std::ifstream file(process / "stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // a name may hold anything, brackets and spaces too
  if (name_end == std::string::npos) return false;
  std::istringstream fields(line.substr(name_end + 1));
  char state = 'Z';
  pid_t parent = 0;
  pid_t group = 0;
  fields >> state >> parent >> group;
  return state != 'Z' && state != 'X' && groups.count(group) != 0;
}

/** A killed process that its parent has not reaped yet is not left: an init may take seconds over it. */
bool any_left(const std::set<pid_t>& groups, const std::vector<pid_t>& tagged) {
  if (!tagged.empty()) return true;
  const bool groups_exist =
      std::any_of(groups.begin(), groups.end(), [](pid_t group) { return ::kill(-group, 0) == 0; });
  bool left = false;
  if (groups_exist) {
    for_each_process([&](pid_t, const fs::path& process) { left = left || runs_in(process, groups); });
  }
  return left;
}

enum class Ending { launcher_died, helper_ended, dismissed };

/** Follows the launcher's orders until something ends. */
Ending wait_for_ending(const WatchdogRequest& request, std::set<pid_t>& groups) {
  LineSplitter splitter;
  bool dismissed = false;
  std::array<char, 4096> chunk{};
  std::array<pollfd, 3> entries{{{request.launcher_pidfd, POLLIN, 0},
                                 {request.orders_fd, POLLIN, 0},
                                 {request.helper_pidfd, POLLIN, 0}}};
  while (true) {
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return Ending::launcher_died;
    if (entries[1].revents != 0) {
      const ssize_t n = ::read(request.orders_fd, chunk.data(), chunk.size());
      if (n == 0 || (n < 0 && errno != EINTR)) return Ending::launcher_died;
      if (n > 0) {
        splitter.feed({chunk.data(), static_cast<std::size_t>(n)}, [&](const std::string& line) {
          pid_t group = 0;
          std::from_chars(line.data() + 1, line.data() + line.size(), group);
          if (group > 1 && line.front() == '+') groups.insert(group);
          if (line.front() == '-') groups.erase(group);
          dismissed = dismissed || line == kDismissal;
        });
      }
      if (dismissed) return Ending::dismissed;
      continue;  // orders come first: what they name must be known when the launcher's death is seen
    }
    if (entries[0].revents != 0) return Ending::launcher_died;
    if (entries[2].revents != 0) return Ending::helper_ended;
  }
}

}  // namespace

std::string make_job_tag() {
  std::random_device random;
  const char* outer = std::getenv(kJobTag);
  return fmt::format("{}{}{}.{}.{:08x}{:08x}", outer != nullptr ? outer : "", outer != nullptr ? "/" : "",
                     host_name(), ::getpid(), random(), random());
}

std::vector<pid_t> tagged_processes(const std::string& tag) {
  const std::string wanted = std::string(kJobTag) + "=" + tag;
  const pid_t self = ::getpid();
  const uid_t user = ::geteuid();
  std::vector<pid_t> found;
  for_each_process([&](pid_t pid, const fs::path& process) {
    struct stat info {};
    if (pid == self || ::stat(process.c_str(), &info) != 0 || (user != 0 && info.st_uid != user)) return;
    if (carries(process, wanted)) found.push_back(pid);
  });
  return found;
}

void kill_job(const std::set<pid_t>& groups, const std::string& tag, Deadline deadline) {
  auto pause = std::chrono::milliseconds(2);
  // Twice, because a process in the middle of exec shows no environment.
  for (int clean = 0; clean < 2;) {
    for (const pid_t group : groups) ::kill(-group, SIGKILL);
    const auto tagged = tagged_processes(tag);
    for (const pid_t pid : tagged) ::kill(pid, SIGKILL);
    if (deadline.expired()) return;
    clean = any_left(groups, tagged) ? 0 : clean + 1;
    if (clean == 2) return;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

void run_watchdog(const WatchdogRequest& request) {
  std::set<pid_t> groups;
  const Ending ending = wait_for_ending(request, groups);
  if (ending == Ending::dismissed && request.helper > 0) ::kill(request.helper, SIGKILL);
  if (ending != Ending::launcher_died) return;
  kill_job(groups, request.tag, Deadline::after(kKillTime));
  // It sees the launcher's death too, tells the other nodes, and ends by itself.
  pollfd helper{request.helper_pidfd, POLLIN, 0};
  while (::poll(&helper, 1, static_cast<int>(kHelperTime.count())) < 0 && errno == EINTR) continue;
  if (request.helper > 0) ::kill(request.helper, SIGKILL);
  std::error_code ignored;
  fs::remove_all(request.scratch, ignored);
}

}  // namespace dtorch
