#include "core/base/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_text.h"

namespace dtorch {
namespace {

constexpr std::size_t kMaxMessage = std::size_t{4} << 20;
/** What one call reads at most, so that a peer that never pauses cannot hold the reader. */
constexpr std::size_t kMaxRead = std::size_t{8} << 20;

void wait_for(int fd, short events, Deadline deadline) {
  pollfd entry{fd, events, 0};
  ::poll(&entry, 1, deadline.poll_ms());
}

std::string line_of(const nlohmann::json& message) {
  std::string line = json_text(message) + '\n';
  if (line.size() <= kMaxMessage) return line;
  throw Error(ErrorKind::training, fmt::format("a control message of {} bytes is over 4 MiB", line.size()));
}

}  // namespace

bool Channel::send(const nlohmann::json& message, Deadline deadline) {
  const std::string line = line_of(message);
  const std::lock_guard lock(send_mutex_);
  tell_left_out(deadline);
  return send_line(line, deadline);
}

bool Channel::offer(const nlohmann::json& message) {
  const Deadline now(Clock::time_point::min());
  const std::string line = line_of(message);
  const std::lock_guard lock(send_mutex_);
  tell_left_out(now);
  if (left_out_ == 0 && send_line(line, now)) return true;
  ++left_out_;
  return false;
}

void Channel::tell_left_out(Deadline deadline) {
  if (left_out_ == 0) return;
  const auto text = fmt::format("{} records were left out: the launcher did not read them", left_out_);
  if (send_line(line_of({{"type", "log"}, {"level", "warning"}, {"text", text}}), deadline)) left_out_ = 0;
}

bool Channel::send_line(std::string line, Deadline deadline) {
  if (!push(deadline)) return false;
  const std::size_t size = line.size();
  unsent_ = std::move(line);
  if (push(deadline)) return true;
  if (gone_ || unsent_.size() < size) return !gone_;
  unsent_.clear();  // nothing of it has gone out: as if it had not been tried
  return false;
}

bool Channel::push(Deadline deadline) {
  while (!gone_ && !unsent_.empty()) {
    const ssize_t n = ::send(fd(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      unsent_.erase(0, static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (deadline.expired()) return false;
      wait_for(fd(), POLLOUT, deadline);
    } else if (errno != EINTR) {
      gone_ = true;
    }
  }
  return !gone_;
}

std::optional<nlohmann::json> Channel::receive(Deadline deadline) {
  while (true) {
    if (auto message = take_line()) return message;
    fill();
    if (auto message = take_line()) return message;
    if (closed_)
      throw Error(ErrorKind::lost, fmt::format("control channel {}: the other end was closed", fd()));
    if (deadline.expired()) return std::nullopt;
    wait_for(fd(), POLLIN, deadline);
  }
}

std::vector<nlohmann::json> Channel::read_available() {
  fill();
  std::vector<nlohmann::json> messages;
  while (auto message = take_line()) messages.push_back(std::move(*message));
  return messages;
}

void Channel::fill() {
  std::array<char, 65536> chunk{};
  std::size_t total = 0;
  while (!closed_ && total < kMaxRead) {
    const ssize_t n = ::recv(fd(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n > 0) {
      buffer_.append(chunk.data(), static_cast<std::size_t>(n));
      total += static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return;
    } else {
      closed_ = true;  // end of file, or ECONNRESET from a peer that died with unread messages
    }
  }
}

std::optional<nlohmann::json> Channel::take_line() {
  const std::size_t found = buffer_.find('\n', scanned_);
  const std::size_t end = std::min(found, buffer_.size());
  scanned_ = end;
  if (end - taken_ > kMaxMessage) {
    throw Error(ErrorKind::lost, fmt::format("control channel {}: a message is longer than 4 MiB", fd()));
  }
  if (found == std::string::npos) {
    // Only here, once for many messages: taking each out of the buffer would move all that follow it.
    buffer_.erase(0, std::exchange(taken_, 0));
    scanned_ = buffer_.size();
    return std::nullopt;
  }
  const char* text = buffer_.data();
  auto message = nlohmann::json::parse(text + taken_, text + end, nullptr, /*allow_exceptions=*/false);
  taken_ = scanned_ = end + 1;
  if (!message.is_object()) {
    throw Error(ErrorKind::lost,
                fmt::format("control channel {}: received a line that is not a JSON object", fd()));
  }
  return message;
}

std::pair<Fd, Fd> make_channel_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Error(ErrorKind::os_resource, errno_text("cannot make a control channel: socketpair", errno));
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace dtorch
