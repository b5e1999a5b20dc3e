#include "core/launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/base/error.h"

namespace dtorch {
namespace {

constexpr std::size_t kMaxLine = std::size_t{64} << 10;
constexpr std::size_t kTailLines = 20;
/** What one call reads at most, so that a rank that prints without end cannot hold the launcher. */
constexpr std::size_t kMaxRead = std::size_t{1} << 20;

}  // namespace

void LineSplitter::feed(std::string_view bytes, const OnLine& on_line) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t wanted = std::min(newline, bytes.size());
    const std::size_t taken = std::min(wanted, kMaxLine - partial_.size());
    partial_.append(bytes.substr(0, taken));
    const bool at_newline = taken == newline;
    bytes.remove_prefix(at_newline ? taken + 1 : taken);
    if (at_newline || partial_.size() == kMaxLine) on_line(std::exchange(partial_, {}));
  }
}

void LineSplitter::finish(const OnLine& on_line) {
  if (!partial_.empty()) on_line(std::exchange(partial_, {}));
}

RankOutput::RankOutput(const std::string& log_file, OnLine on_line, OnFailure on_failure)
    : log_name_(log_file), on_line_(std::move(on_line)), on_failure_(std::move(on_failure)) {
  if (!log_file.empty()) {
    log_file_ = Fd(::open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!log_file_.valid()) {
      throw Error(ErrorKind::cannot_create,
                  errno_text(fmt::format("cannot create the log {}", log_file), errno));
    }
  }
  for (Stream& stream : streams_) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(ErrorKind::os_resource, errno_text("cannot make a pipe for a rank's output", errno));
    }
    stream.reader = Fd(ends[0]);
    stream.writer = Fd(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
}

void RankOutput::close_writers() {
  for (Stream& stream : streams_) stream.writer.reset();
}

bool RankOutput::read_available(bool is_stderr) {
  Stream& stream = streams_[is_stderr ? 1 : 0];
  const auto on_line = [&](const std::string& line) { take(is_stderr, line); };
  std::array<char, 65536> chunk{};
  std::size_t total = 0;
  while (stream.reader.valid() && total < kMaxRead) {
    const ssize_t n = ::read(stream.reader.get(), chunk.data(), chunk.size());
    if (n > 0) {
      stream.splitter.feed({chunk.data(), static_cast<std::size_t>(n)}, on_line);
      total += static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && errno == EAGAIN) {
      return true;
    } else {
      stream.splitter.finish(on_line);
      stream.reader.reset();
    }
  }
  return stream.reader.valid();
}

void RankOutput::finish() {
  for (const bool is_stderr : {false, true}) {
    read_available(is_stderr);
    Stream& stream = streams_[is_stderr ? 1 : 0];
    stream.splitter.finish([&](const std::string& line) { take(is_stderr, line); });
    stream.reader.reset();
  }
}

void RankOutput::take(bool is_stderr, const std::string& line) {
  tail_.push_back(line);
  if (tail_.size() > kTailLines) tail_.pop_front();
  if (log_file_.valid()) {
    const std::string text = line + '\n';
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(log_file_.get(), text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        log_failure_ = errno_text(fmt::format("cannot write the log {}", log_name_), errno);
        on_failure_(log_failure_);
        log_file_.reset();
        break;
      }
      done += static_cast<std::size_t>(n);
    }
  }
  on_line_(is_stderr, line);
}

}  // namespace dtorch
