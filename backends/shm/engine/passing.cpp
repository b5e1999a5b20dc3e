#include "backends/shm/engine/passing.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/base/error.h"

namespace dtorch::shm {
namespace {

constexpr std::size_t kMostFds = 128;

struct Address {
  sockaddr_un socket{};
  socklen_t length = 0;
};

Address address_of(const std::string& name) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.socket.sun_path - 1);
  std::memcpy(address.socket.sun_path + 1, name.data(), length);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

Fd new_socket() {
  // Whole messages, so that descriptors stay with theirs.
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) throw Error(ErrorKind::os_resource, errno_text("socket", errno));
  return fd;
}

bool wait_readable(const Fd& fd, Deadline deadline) {
  pollfd entry{fd.get(), POLLIN, 0};
  while (::poll(&entry, 1, deadline.poll_ms()) <= 0) {
    if (deadline.expired()) return false;
  }
  return true;
}

}  // namespace

Fd listen_at(const std::string& name) {
  Fd fd = new_socket();
  const Address address = address_of(name);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) != 0 ||
      ::listen(fd.get(), 128) != 0) {
    throw Error(ErrorKind::os_resource, errno_text("bind", errno));
  }
  return fd;
}

Fd connect_to(const std::string& name, Deadline deadline) {
  const Address address = address_of(name);
  while (true) {
    Fd fd = new_socket();
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) == 0)
      return fd;
    // A full queue of a busy rank 0 is no reason to give up.
    if (errno != EAGAIN || deadline.expired()) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Fd accept_from(const Fd& listener, Deadline deadline) {
  while (wait_readable(listener, deadline)) {
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return fd;
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
      throw Error(ErrorKind::os_resource, errno_text("accept", errno), "raise the limit of open files");
  }
  return {};
}

bool is_same_user(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

bool send_message(const Fd& socket, std::span<const std::byte> message, std::span<const int> fds) {
  iovec data{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket.get(), &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && (errno == EMFILE || errno == ENOMEM || errno == ETOOMANYREFS || errno == ENOBUFS))
    throw Error(ErrorKind::os_resource, errno_text("sendmsg", errno), "raise the limit of open files");
  return sent == static_cast<ssize_t>(message.size());
}

Received receive_message(const Fd& socket, std::span<std::byte> message, std::vector<Fd>& fds,
                         std::size_t most, Deadline deadline) {
  if (!wait_readable(socket, deadline)) return Received::late;
  iovec data{message.data(), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = -1;
  do {
    got = ::recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  for (cmsghdr* part = got < 0 ? nullptr : CMSG_FIRSTHDR(&header); part != nullptr;
       part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if ((header.msg_flags & MSG_CTRUNC) != 0)
    throw Error(ErrorKind::os_resource, "too few file descriptors to receive those of the shared memory",
                "raise the limit of open files (ulimit -n)");
  return got == static_cast<ssize_t>(message.size()) && fds.size() <= most ? Received::whole : Received::gone;
}

}  // namespace dtorch::shm
