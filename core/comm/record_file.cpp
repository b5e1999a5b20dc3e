#include "core/comm/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/base/hash.h"
#include "core/base/log.h"

namespace dtorch {
namespace {

constexpr std::array<char, 4> kMagic{'d', 't', 'k', '1'};
constexpr std::uint64_t kMaxKey = 64 * 1024;
constexpr std::uint64_t kMaxValue = 1ULL << 30;

struct Header {
  std::array<char, 4> magic;
  std::uint32_t deleted;
  std::uint64_t key_size;
  std::uint64_t value_size;
  std::uint64_t checksum;
};
static_assert(sizeof(Header) == 32);

/** Of what follows the header. */
std::uint64_t checksum(const std::string& bytes) {
  return fnv1a(std::string_view(bytes).substr(sizeof(Header)));
}

std::string serialize(const Record& record) {
  std::string bytes(sizeof(Header), '\0');
  bytes += record.key;
  if (record.value) bytes.append(record.value->begin(), record.value->end());
  Header header{kMagic, record.value ? 0U : 1U, record.key.size(), record.value ? record.value->size() : 0,
                0};
  header.checksum = checksum(bytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

ReadResult damaged(std::string problem) { return {ReadState::damaged, {}, std::move(problem)}; }

ReadResult parse(const std::string& bytes) {
  Header header{};
  if (bytes.empty()) return {ReadState::superseded, {}, {}};
  if (bytes.size() < sizeof(header)) {
    return damaged(fmt::format("{} bytes, expected at least {}", bytes.size(), sizeof(header)));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return damaged("it does not start as a store file does");
  const bool sane = header.key_size <= kMaxKey && header.value_size <= kMaxValue && header.deleted <= 1;
  if (!sane || bytes.size() != sizeof(header) + header.key_size + header.value_size) {
    return damaged(fmt::format("{} bytes, but its head promises a key of {} and a value of {}", bytes.size(),
                               header.key_size, header.value_size));
  }
  if (header.checksum != checksum(bytes)) return damaged("its checksum does not match");
  ReadResult result{ReadState::whole, {bytes.substr(sizeof(header), header.key_size), {}}, {}};
  if (header.deleted == 0) {
    const auto* start =
        reinterpret_cast<const std::uint8_t*>(bytes.data()) + sizeof(header) + header.key_size;
    result.record.value.emplace(start, start + header.value_size);
  }
  return result;
}

bool gone(int error) { return error == ENOENT || error == ESTALE || error == ENOTDIR; }

void write_all(int fd, const std::string& bytes, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Error(ErrorKind::cannot_write, fmt::format("{}: {}", path, errno_text("write", errno)));
    done += static_cast<std::size_t>(n);
  }
}

/** Unique among hosts, processes and threads. */
std::string temporary_path(const std::string& directory) {
  static const auto process =
      (static_cast<std::uint64_t>(std::random_device{}()) << 32) | std::random_device{}();
  static std::atomic<std::uint64_t> counter{0};
  return fmt::format("{}/{}{:016x}.{}", directory, kTemporaryPrefix, process, counter++);
}

/** A file that is removed unless it got another name. */
class Temporary {
 public:
  Temporary(const std::string& directory, const std::string& bytes) : path_(temporary_path(directory)) {
    const Fd fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd.valid()) {
      const auto kind = gone(errno) ? ErrorKind::lost : ErrorKind::cannot_write;
      throw Error(kind, fmt::format("{}: {}", path_, errno_text("open", errno)));
    }
    try {
      write_all(fd.get(), bytes, path_);
    } catch (...) {
      ::unlink(path_.c_str());
      throw;
    }
  }
  ~Temporary() { ::unlink(path_.c_str()); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool no_hard_links(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK || error == EINVAL;
}

bool create_without_links(const std::string& target, const std::string& bytes) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    log_info(
        fmt::format("{}: this file system has no hard links; creating files exclusively instead", target));
  }
  const Fd fd(::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid() && errno == EEXIST) return false;
  if (!fd.valid())
    throw Error(ErrorKind::cannot_write, fmt::format("{}: {}", target, errno_text("open", errno)));
  write_all(fd.get(), bytes, target);
  return true;
}

}  // namespace

ReadResult read_record(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) {
    if (gone(errno)) return {};
    throw Error(ErrorKind::lost, fmt::format("{}: {}", path, errno_text("open", errno)));
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return {};
  if (!S_ISREG(info.st_mode)) return damaged("not a regular file");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > sizeof(Header) + kMaxKey + kMaxValue) return damaged(fmt::format("{} bytes are too many", size));
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto n = ::read(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && gone(errno)) return {};  // replaced on the server meanwhile: the caller looks again
    if (n < 0) throw Error(ErrorKind::lost, fmt::format("{}: {}", path, errno_text("read", errno)));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return parse(bytes);
}

bool create_record(const std::string& directory, const std::string& target, const Record& record) {
  if (record.key.size() > kMaxKey || (record.value && record.value->size() > kMaxValue)) {
    throw Error(ErrorKind::usage,
                fmt::format("a store's key has at most {} bytes and its value {}", kMaxKey, kMaxValue));
  }
  const auto bytes = serialize(record);
  const auto path = directory + "/" + target;
  const Temporary temporary(directory, bytes);
  if (::link(temporary.path().c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  // An NFS server whose answer got lost is asked again and then says that the name is taken: by us.
  struct stat info {};
  if (::stat(temporary.path().c_str(), &info) == 0 && info.st_nlink == 2) return true;
  if (error == EEXIST) return false;
  if (no_hard_links(error)) return create_without_links(path, bytes);
  const auto kind = gone(error) ? ErrorKind::lost : ErrorKind::cannot_write;
  throw Error(kind, fmt::format("{}: {}", path, errno_text("link", error)));
}

bool replace_file(const std::string& directory, const std::string& target, const std::string& bytes) {
  try {
    const Temporary temporary(directory, bytes);
    const auto path = directory + "/" + target;
    if (::rename(temporary.path().c_str(), path.c_str()) == 0) return true;
    if (gone(errno)) return false;
    throw Error(ErrorKind::cannot_write, fmt::format("{}: {}", path, errno_text("rename", errno)));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::lost) return false;
    throw;
  }
}

}  // namespace dtorch
