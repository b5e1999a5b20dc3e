#include "core/base/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace dtorch {
namespace {

constexpr std::size_t kMaxMessage = std::size_t{4} << 20;
/** What one call reads at most, so that a peer that never pauses cannot hold the reader. */
constexpr std::size_t kMaxRead = std::size_t{8} << 20;
constexpr std::chrono::seconds kSendWait(5);

void wait_for(int fd, short events, Deadline deadline) {
  pollfd entry{fd, events, 0};
  ::poll(&entry, 1, deadline.poll_ms());
}

}  // namespace

bool Channel::send(const nlohmann::json& message) {
  const std::string line = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  if (line.size() > kMaxMessage) {
    throw Error(ErrorKind::training, fmt::format("a control message of {} bytes is over 4 MiB", line.size()));
  }
  const std::lock_guard lock(send_mutex_);
  if (broken_) return false;
  const Deadline deadline = Deadline::after(kSendWait);
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(fd(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if ((errno == EAGAIN || errno == EWOULDBLOCK) && !deadline.expired()) {
      wait_for(fd(), POLLOUT, deadline);
    } else if (errno != EINTR) {
      broken_ = true;
      return false;
    }
  }
  return true;
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
  const std::size_t end = buffer_.find('\n');
  if (end == std::string::npos ? buffer_.size() > kMaxMessage : end > kMaxMessage) {
    throw Error(ErrorKind::lost, fmt::format("control channel {}: a message is longer than 4 MiB", fd()));
  }
  if (end == std::string::npos) return std::nullopt;
  auto message =
      nlohmann::json::parse(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(end), nullptr,
                            /*allow_exceptions=*/false);
  buffer_.erase(0, end + 1);
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
