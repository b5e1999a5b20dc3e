#include "core/comm/dir_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/base/hash.h"
#include "core/comm/record_file.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 200us;
constexpr auto kLongestPause = 20ms;
/** A file that stays damaged so long will not become whole: no writer is at work on it. */
constexpr auto kDamageGrace = 2s;
constexpr std::size_t kMaxName = 180;

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

/** Names in a directory; empty when it has gone. */
std::vector<std::string> list_directory(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (!directory) return names;
  while (const auto* entry = ::readdir(directory.get()))
    names.emplace_back(static_cast<const char*>(entry->d_name));
  return names;
}

class BackOff {
 public:
  /** Sleeps, longer each time, but not past the deadline. False: it has passed. */
  bool pause(Deadline deadline) {
    const auto left = deadline.remaining();
    if (left.count() <= 0) return false;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, pause_));
    pause_ = std::min<std::chrono::microseconds>(pause_ * 3 / 2, kLongestPause);
    return true;
  }

 private:
  std::chrono::microseconds pause_{kFirstPause};
};

}  // namespace

std::string escape_key(const std::string& key) {
  std::string name = "k.";
  for (const char c : key) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    name += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    if (name.size() > kMaxName)
      return fmt::format("h.{:016x}{:016x}", fnv1a(key), fnv1a(key, 0x9e3779b97f4a7c15U));
  }
  return name;
}

bool is_dir_store_file(const std::string& name) {
  if (name.starts_with(kTemporaryPrefix)) return true;
  const auto at = name.rfind('@');
  if (at == std::string::npos || !(name.starts_with("k.") || name.starts_with("h."))) return false;
  return at + 1 < name.size() && name.find_first_not_of("0123456789", at + 1) == std::string::npos;
}

DirStore::DirStore(std::string directory, std::string name)
    : directory_(std::move(directory)), name_(std::move(name)) {}

c10::intrusive_ptr<c10d::Store> DirStore::clone() {
  auto copy = c10::make_intrusive<DirStore>(directory_, name_);
  copy->setTimeout(timeout_);
  return copy;
}

std::string DirStore::path(const std::string& key, std::uint64_t version) const {
  return fmt::format("{}/{}@{}", directory_, escape_key(key), version);
}

/** NFS clients remember that a name was absent until they look at the directory anew; opening it makes them.
 */
void DirStore::refresh() const {
  const Fd fd(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    throw Error(
        ErrorKind::lost,
        fmt::format("store {}: its folder {} has gone: {}", name_, directory_, errno_text("open", errno)),
        "another rank has ended and cleaned up, or someone removed it");
  }
}

std::uint64_t DirStore::newest_version(const std::string& key) {
  const auto exists = [&](std::uint64_t version) { return ::access(path(key, version).c_str(), F_OK) == 0; };
  std::uint64_t low = 0;  // exists (0: the state before the first)
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = known_.find(key); it != known_.end()) low = it->second;
  }
  std::uint64_t step = 1;
  while (exists(low + step)) {
    low += step;
    step *= 2;
  }
  // low exists, low + step does not: halve the distance.
  for (std::uint64_t high = low + step; high - low > 1;) {
    const auto middle = low + (high - low) / 2;
    (exists(middle) ? low : high) = middle;
  }
  const std::lock_guard lock(mutex_);
  auto& known = known_[key];
  known = std::max(known, low);
  return known;
}

DirStore::Latest DirStore::latest(const std::string& key) {
  refresh();
  BackOff back_off;
  const auto patience = Deadline::after(kDamageGrace);
  while (true) {
    const auto version = newest_version(key);
    if (version == 0) return {};
    auto read = read_record(path(key, version));
    if (read.state == ReadState::whole && read.record.key == key)
      return {version, std::move(read.record.value)};
    if (read.state == ReadState::whole) read.problem = fmt::format("it holds the key '{}'", read.record.key);
    if (read.state == ReadState::superseded) read.problem = "it is empty";
    if (read.state == ReadState::absent) refresh();
    if (!back_off.pause(patience)) {
      throw Error(
          ErrorKind::lost,
          fmt::format("store {}: {} is damaged: {}", name_, path(key, version), read.problem),
          "the file was not written by a rank of this job, or its file system lost part of it: remove the "
          "folder and start again");
    }
  }
}

bool DirStore::publish(const std::string& key, std::uint64_t version, const Value& value) {
  if (!create_record(directory_, fmt::format("{}@{}", escape_key(key), version), {key, value})) return false;
  if (version > 1) replace_file(directory_, fmt::format("{}@{}", escape_key(key), version - 1), "");
  const std::lock_guard lock(mutex_);
  auto& known = known_[key];
  known = std::max(known, version);
  return true;
}

template <typename Change>
DirStore::Latest DirStore::update(const std::string& key, Change&& change) {
  BackOff back_off;
  const auto deadline = Deadline::after(timeout_);
  while (true) {
    auto now = latest(key);
    std::optional<Value> next = change(now.value);
    if (!next) return now;
    if (publish(key, now.version + 1, *next)) return {now.version + 1, std::move(*next)};
    if (!back_off.pause(deadline)) {
      throw Error(ErrorKind::timeout,
                  fmt::format("store {}: key '{}' is changed by others all the time", name_, key));
    }
  }
}

void DirStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  update(key, [&](const Value&) { return std::optional<Value>(Value(value)); });
}

std::vector<uint8_t> DirStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                          const std::vector<uint8_t>& desired) {
  const auto result = update(key, [&](const Value& now) -> std::optional<Value> {
    if (now ? *now == expected : expected.empty()) return Value(desired);
    return std::nullopt;
  });
  return result.value.value_or(expected);
}

std::vector<uint8_t> DirStore::get(const std::string& key) {
  const auto deadline = Deadline::after(timeout_);
  BackOff back_off;
  while (true) {
    auto now = latest(key);
    if (now.value) return std::move(*now.value);
    if (!back_off.pause(deadline)) {
      throw Error(ErrorKind::timeout,
                  fmt::format("store {}: key '{}' did not come within {} ms", name_, key, timeout_.count()));
    }
  }
}

int64_t DirStore::add(const std::string& key, int64_t amount) {
  int64_t sum = 0;
  update(key, [&](const Value& now) -> std::optional<Value> {
    sum = 0;
    const auto text = now ? text_of(*now) : "0";
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), sum);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
      throw Error(ErrorKind::usage,
                  fmt::format("store {}: add to key '{}', which holds no number", name_, key));
    }
    if (__builtin_add_overflow(sum, amount, &sum)) {
      throw Error(ErrorKind::usage, fmt::format("store {}: key '{}' overflows", name_, key));
    }
    if (amount == 0 && now) return std::nullopt;
    return Value(bytes_of(std::to_string(sum)));
  });
  return sum;
}

bool DirStore::deleteKey(const std::string& key) {
  bool was_there = false;
  update(key, [&](const Value& now) -> std::optional<Value> {
    was_there = now.has_value();
    return was_there ? std::optional<Value>(Value()) : std::nullopt;
  });
  return was_there;
}

void DirStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  update(key, [&](const Value& now) {
    auto longer = now.value_or(std::vector<uint8_t>());
    longer.insert(longer.end(), value.begin(), value.end());
    return std::optional<Value>(Value(std::move(longer)));
  });
}

bool DirStore::check(const std::vector<std::string>& keys) {
  for (const auto& key : keys) {
    if (!latest(key).value) return false;
  }
  return true;
}

std::vector<std::string> DirStore::listKeys() {
  std::set<std::string> stems;
  for (const auto& name : list_directory(directory_)) {
    if (is_dir_store_file(name) && !name.starts_with(kTemporaryPrefix)) stems.insert(name);
  }
  std::set<std::string> keys;
  for (const auto& name : stems) {
    const auto read = read_record(directory_ + "/" + name);
    if (read.state == ReadState::whole && latest(read.record.key).value) keys.insert(read.record.key);
  }
  return {keys.begin(), keys.end()};
}

int64_t DirStore::getNumKeys() { return static_cast<int64_t>(listKeys().size()); }

void DirStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void DirStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const auto deadline = timeout == kNoTimeout ? Deadline(Clock::time_point::max()) : Deadline::after(timeout);
  BackOff back_off;
  for (const auto& key : keys) {
    while (!latest(key).value) {
      if (!back_off.pause(deadline)) {
        throw Error(ErrorKind::timeout,
                    fmt::format("store {}: key '{}' did not come within {} ms", name_, key, timeout.count()));
      }
    }
  }
}

}  // namespace dtorch
