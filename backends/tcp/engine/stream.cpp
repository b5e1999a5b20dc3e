#include "backends/tcp/engine/stream.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

namespace dtorch::tcp {
namespace {

constexpr std::size_t kInbox = 16 << 10;

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Stream::Stream(Fd fd, const FrameRules& rules)
    : fd_(std::move(fd)), rules_(rules), inbox_(std::make_unique<std::byte[]>(kInbox)) {}

std::size_t Stream::receive(void* to, std::size_t bytes) {
  const auto got = ::recv(fd_.get(), to, bytes, MSG_DONTWAIT);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0) throw StreamEnd{};
  if (!would_wait(errno)) throw StreamEnd{errno};
  return 0;
}

const Frame* Stream::front() {
  if (has_front_) return &front_;
  if (end_ - begin_ < sizeof(Frame)) {
    std::memmove(inbox_.get(), inbox_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    end_ += receive(inbox_.get() + end_, kInbox - end_);
  }
  const auto frame = parse_frame(std::span(inbox_.get() + begin_, end_ - begin_), rules_);
  if (!frame) return nullptr;
  begin_ += sizeof(Frame);
  front_ = *frame;
  left_ = front_.length;
  has_front_ = true;
  return &front_;
}

std::size_t Stream::read(void* to, std::size_t bytes) {
  bytes = std::min(bytes, left_);
  if (bytes == 0) return 0;
  std::size_t got = std::min(bytes, end_ - begin_);
  if (got > 0) {
    std::memcpy(to, inbox_.get() + begin_, got);
    begin_ += got;
  } else {
    got = receive(to, bytes);
  }
  left_ -= got;
  return got;
}

void Stream::pop() { has_front_ = false; }

std::size_t Stream::write(const Frame& frame, const void* payload, std::size_t sent, std::size_t limit) {
  std::array<iovec, 2> parts{};
  std::size_t used = 0;
  std::size_t payload_sent = 0;
  if (sent < sizeof frame) {
    const auto* header = reinterpret_cast<const char*>(&frame) + sent;
    parts[used++] = {const_cast<char*>(header), sizeof frame - sent};
  } else {
    payload_sent = sent - sizeof frame;
  }
  if (payload_sent < frame.length) {
    const auto* data = static_cast<const char*>(payload) + payload_sent;
    parts[used++] = {const_cast<char*>(data), std::min<std::size_t>(limit, frame.length - payload_sent)};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = used;
  const auto gone = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (gone >= 0) return static_cast<std::size_t>(gone);
  if (!would_wait(errno)) throw StreamEnd{errno};
  return 0;
}

void Stream::shut() { ::shutdown(fd_.get(), SHUT_WR); }

void Stream::linger(Deadline deadline) {
  while (true) {
    while (::recv(fd_.get(), inbox_.get(), kInbox, MSG_DONTWAIT) > 0) {
    }
    int left = 0;
    if (::ioctl(fd_.get(), SIOCOUTQ, &left) != 0 || left == 0 || deadline.expired()) return;
    // A peer that has ended its side, or died, wants nothing more.
    pollfd ended{fd_.get(), POLLRDHUP, 0};
    if (::poll(&ended, 1, 1) > 0) return;
  }
}

}  // namespace dtorch::tcp
