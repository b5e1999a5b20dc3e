#include "core/data/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/data/transfer.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;

constexpr int kMaxCuts = 5;  // of one mirror; each time it must have sent something
constexpr auto kPauseAfterCut = 100ms;

[[noreturn]] void throw_cannot(ErrorKind kind, const std::string& path, const char* call, int number) {
  throw Error(
      kind, fmt::format("{}: {}", path, errno_text(call, number)),
      number == ENOSPC
          ? "Free some space there, or set dataset.root to another disk, and run again: the download goes on "
            "where it stopped."
          : "Set dataset.root to a folder that can be written.");
}

Fd open_part(const std::string& path) {
  Fd part(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!part.valid()) throw_cannot(ErrorKind::cannot_create, path, "open", errno);
  return part;
}

std::uint64_t size_of(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

void publish(const Fd& part, const std::string& part_path, const std::string& path) {
  if (::fsync(part.get()) != 0) throw_cannot(ErrorKind::cannot_write, part_path, "fsync", errno);
  if (::rename(part_path.c_str(), path.c_str()) != 0)
    throw_cannot(ErrorKind::cannot_write, path, "rename", errno);
  const auto folder = std::filesystem::path(path).parent_path();
  const Fd directory(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems refuse to sync a folder; the file itself is safe.
  if (directory.valid() && ::fsync(directory.get()) != 0) log_debug(errno_text("fsync of the folder", errno));
}

}  // namespace

bool is_download_url(const std::string& url) {
  return url.starts_with("http://") || url.starts_with("https://");
}

struct Downloader::Attempts {
  std::string reasons;  // a line a mirror
  std::string help;
  bool wrong = false;  // something came, and it was not the file

  void note(const std::string& url, const std::string& reason) {
    reasons += fmt::format("\n  {}: {}", url, reason);
  }
};

Downloader::Downloader(DownloadLimits limits)
    : limits_(limits), transfer_(std::make_unique<HttpTransfer>()) {}
Downloader::~Downloader() = default;

void Downloader::fetch(const DownloadRequest& request) {
  const auto part_path = request.path + ".part";
  const auto part = open_part(part_path);
  Attempts attempts;
  for (const auto& url : request.urls) {
    if (try_mirror(request, url, part.get(), attempts)) return publish(part, part_path, request.path);
  }
  if (size_of(part.get()) == 0) ::unlink(part_path.c_str());
  const auto kind = attempts.wrong ? ErrorKind::data : ErrorKind::lost;
  throw Error(kind,
              fmt::format("{}: no mirror {}:{}", request.title,
                          attempts.wrong ? "has the right file" : "could be used", attempts.reasons),
              attempts.help);
}

// Leaves the whole, right file in `part`, or says why it is not.
bool Downloader::try_mirror(const DownloadRequest& request, const std::string& url, int part,
                            Attempts& attempts) {
  const auto part_path = request.path + ".part";
  int cuts = 0;
  while (true) {
    const auto patience =
        std::min<std::chrono::nanoseconds>(limits_.connect, limits_.connect_total - connecting_);
    if (patience <= 0ns) {
      attempts.note(url, "not tried, as the mirrors before it could not be reached");
      return false;
    }
    const auto before = size_of(part);
    const auto begin = Clock::now();
    const auto result = transfer_->run({.url = url,
                                        .title = request.title,
                                        .file = part,
                                        .offset = before,
                                        .max_bytes = request.max_bytes,
                                        .connect = patience,
                                        .stall = limits_.stall});
    if (!result.help.empty()) attempts.help = result.help;
    switch (result.end) {
      case TransferEnd::complete: {
        const auto fault = request.fault(part_path);
        if (fault.empty()) return true;
        // The next file must not begin with what such a server still sends.
        transfer_ = std::make_unique<HttpTransfer>();
        // Never go on with what is wrong. A resumed file may be wrong only because its pieces do not belong
        // together.
        if (::ftruncate(part, 0) != 0) throw_cannot(ErrorKind::cannot_write, part_path, "ftruncate", errno);
        if (before == 0 || !result.resumed) {
          attempts.wrong = true;
          attempts.note(url, fault);
          return false;
        }
        log_info(fmt::format("{}: the resumed file is wrong ({}): starting again", request.title, fault));
        break;
      }
      case TransferEnd::cut:
        if (size_of(part) <= before || ++cuts > kMaxCuts) {
          attempts.note(url, result.reason);
          return false;
        }
        std::this_thread::sleep_for(kPauseAfterCut * cuts);
        break;
      case TransferEnd::unreachable:
        connecting_ += std::min<std::chrono::nanoseconds>(Clock::now() - begin, patience);
        [[fallthrough]];
      case TransferEnd::refused: attempts.note(url, result.reason); return false;
      case TransferEnd::disk: throw_cannot(ErrorKind::cannot_write, part_path, "write", result.error_number);
    }
  }
}

}  // namespace dtorch
