#include "core/comm/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "core/base/host.h"
#include "core/base/json_text.h"
#include "core/base/log.h"
#include "core/comm/dir_store.h"
#include "core/comm/record_file.h"

namespace dtorch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;

constexpr char kMemberPrefix[] = "m.";
constexpr char kMadeOuter[] = "o.made";
constexpr auto kBeatEvery = 1s;
/** A process elsewhere that waits renews its file every second; NFS may show it late. */
constexpr auto kSilentAfter = 15s;
constexpr std::uintmax_t kMaxMemberFile = 4096;

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

/** The machine through all its starts. Copies of one image have the first part in common, and other names. */
std::string installation() { return first_line("/etc/machine-id") + "/" + host_name(); }

/** Two processes with equal text here see each other's process ids. */
std::string machine_id() {
  std::array<char, 64> pid_namespace{};
  if (::readlink("/proc/self/ns/pid", pid_namespace.data(), pid_namespace.size() - 1) < 0)
    pid_namespace[0] = '\0';
  return boot_id() + pid_namespace.data();
}

/** Clock ticks from boot to the process's start: tells a process from a later one with the same id. 0: none
 * such. */
std::uint64_t start_time(int pid) {
  const auto line = first_line(fmt::format("/proc/{}/stat", pid));
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string state;
  fields >> state;
  if (state == "Z" || state == "X") return 0;
  std::string skip;
  for (int i = 0; i < 18; ++i) fields >> skip;
  std::uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

bool is_ours(const std::string& name) {
  return is_dir_store_file(name) || name.starts_with(kMemberPrefix) || name == kMadeOuter;
}

std::string local_time(std::time_t time) {
  std::tm parts{};
  std::array<char, 32> text{};
  ::localtime_r(&time, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

[[noreturn]] void cannot_create(const std::string& path, int error) {
  const auto kind =
      error == EACCES || error == EPERM || error == EROFS ? ErrorKind::not_allowed : ErrorKind::cannot_create;
  throw Error(kind, fmt::format("cannot make the folder {}: {}", path, errno_text("mkdir", error)));
}

}  // namespace

/** What another process's file says. */
struct RunFolder::Other {
  std::string file;
  std::string run_id, host, machine, boot, installed;
  int pid = 0;
  std::uint64_t started = 0;
  std::time_t created = 0;
  long beats = 0;

  bool here() const { return machine == machine_id(); }
  bool before_boot() const { return boot != boot_id() && installed == installation(); }
  bool dead() const { return before_boot() || (here() && start_time(pid) != started); }
};

RunFolder::RunFolder(std::string outer, std::string run_id, const std::string& name)
    : outer_(std::move(outer)), path_(outer_ + "/" + name), run_id_(std::move(run_id)) {
  std::random_device random;
  file_ = fmt::format("{}{:08x}{:08x}", kMemberPrefix, random(), random());
  enter();
  try {
    look_around();
  } catch (...) {
    ::unlink((path_ + "/" + file_).c_str());
    throw;
  }
}

RunFolder::~RunFolder() {
  try {
    leave();
  } catch (const std::exception& error) {
    log_warning(fmt::format("cannot clean up {}: {}", path_, error.what()));
  }
}

void RunFolder::enter() {
  const bool made_outer = ::mkdir(outer_.c_str(), 0777) == 0;
  if (!made_outer && errno != EEXIST) cannot_create(outer_, errno);
  struct stat info {};
  if (::stat(outer_.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) {
    throw Error(
        ErrorKind::cannot_create,
        fmt::format(
            "{} is a file ({} bytes) left there by something else; dtorch keeps a folder at that path",
            outer_, info.st_size),
        fmt::format("if nobody needs it: rm {}; or name another path", outer_));
  }
  beats_ = 0;
  // The last process of a run may be removing the folder just now.
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (::mkdir(outer_.c_str(), 0777) != 0 && errno != EEXIST) cannot_create(outer_, errno);
    if (::mkdir(path_.c_str(), 0777) != 0 && errno != EEXIST && errno != ENOENT) cannot_create(path_, errno);
    next_beat_ = {};
    if (made_outer && !replace_file(path_, kMadeOuter, "")) continue;
    renew();
    if (beats_ > 0) return;
  }
  throw Error(ErrorKind::cannot_create, fmt::format("{} disappears as soon as it is made", path_));
}

void RunFolder::renew() {
  const auto now = Clock::now();
  if (now < next_beat_) return;
  next_beat_ = now + kBeatEvery;
  const json self{{"run_id", run_id_},
                  {"host", host_name()},
                  {"machine", machine_id()},
                  {"boot", boot_id()},
                  {"installation", installation()},
                  {"pid", ::getpid()},
                  {"started", start_time(::getpid())},
                  {"created", std::time(nullptr)},
                  {"beats", beats_ + 1}};
  if (!replace_file(path_, file_, json_text(self))) return;
  if (++beats_ > 1) look_around();
}

std::vector<RunFolder::Other> RunFolder::others() const {
  std::vector<Other> found;
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    const auto name = it->path().filename().string();
    if (name == file_ || !name.starts_with(kMemberPrefix)) continue;
    std::error_code size_error;
    const auto size = fs::file_size(it->path(), size_error);
    if (size_error || size > kMaxMemberFile) continue;
    const auto text = first_line(it->path());
    const auto record = json::parse(text, nullptr, false);
    try {
      found.push_back({name, record.at("run_id").get<std::string>(), record.at("host").get<std::string>(),
                       record.at("machine").get<std::string>(), record.at("boot").get<std::string>(),
                       record.at("installation").get<std::string>(), record.at("pid").get<int>(),
                       record.at("started").get<std::uint64_t>(), record.at("created").get<std::time_t>(),
                       record.at("beats").get<long>()});
    } catch (const json::exception&) {
      log_debug(fmt::format("{}/{} is no file of a rank", path_, name));
    }
  }
  return found;
}

void RunFolder::refuse(const Other& other, const std::string& state) const {
  throw Error(ErrorKind::cannot_create,
              fmt::format("{} holds a run{} whose process {} on host {} (joined {}) {}", path_,
                          other.run_id.empty() ? "" : " '" + other.run_id + "'", other.pid, other.host,
                          local_time(other.created), state),
              fmt::format("once nothing of that run is left: rm -r {}; or name another path", path_));
}

void RunFolder::look_around() {
  for (const auto& other : others()) {
    const bool same_run = !run_id_.empty() && other.run_id == run_id_;
    if (other.dead() && same_run) {
      restarted_ = true;
      ::unlink((path_ + "/" + other.file).c_str());
    } else if (other.dead()) {
      refuse(other, other.before_boot()
                        ? "is dead: left over from before this machine was started anew, not joined"
                        : "is dead: left over by a killed run, not joined");
    } else if (other.run_id != run_id_) {
      refuse(other, "is alive: the path is in use");
    } else if (!other.here()) {
      auto known =
          std::find_if(watched_.begin(), watched_.end(), [&](const auto& w) { return w.file == other.file; });
      if (known == watched_.end()) known = watched_.insert(known, {other.file, other.beats, Clock::now()});
      if (known->beats != other.beats) *known = {other.file, other.beats, Clock::now()};
      if (Clock::now() - known->since > kSilentAfter) {
        refuse(other, fmt::format("has shown no sign of life for {} s: dead, or at work without us",
                                  std::chrono::seconds(kSilentAfter).count()));
      }
    }
  }
}

bool RunFolder::exists() const { return ::access((path_ + "/" + file_).c_str(), F_OK) == 0; }

void RunFolder::leave() const {
  ::unlink((path_ + "/" + file_).c_str());
  for (const auto& other : others()) {
    if (!other.dead()) return;
  }
  // Renamed first, so that nobody enters a folder that is half removed.
  const auto doomed = fmt::format("{}.{}", path_, file_);
  if (::rename(path_.c_str(), doomed.c_str()) != 0) return;
  const bool made_outer = ::access((doomed + "/" + kMadeOuter).c_str(), F_OK) == 0;
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(doomed, error), end; !error && it != end; it.increment(error)) {
    if (is_ours(it->path().filename().string())) files.push_back(it->path());
  }
  for (const auto& file : files) ::unlink(file.c_str());
  if (::rmdir(doomed.c_str()) != 0 && errno == ENOTEMPTY) {
    ::rename(doomed.c_str(), path_.c_str());
    log_warning(fmt::format("{} holds files that are not dtorch's: left there", path_));
  }
  if (made_outer) ::rmdir(outer_.c_str());
}

}  // namespace dtorch
