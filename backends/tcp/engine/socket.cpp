#include "backends/tcp/engine/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "core/base/address.h"
#include "core/base/error.h"

namespace dtorch::tcp {
namespace {

/** The bytes of the address itself. */
std::span<const std::byte> bits(const sockaddr* address) {
  if (address->sa_family == AF_INET6)
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 1));
  return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 1));
}

bool same_subnet(const sockaddr* a, const sockaddr* b, const sockaddr* mask) {
  if (a->sa_family != b->sa_family) return false;
  const auto left = bits(a);
  const auto right = bits(b);
  const auto netmask = bits(mask);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (((left[i] ^ right[i]) & netmask[i]) != std::byte{0}) return false;
  }
  return true;
}

bool is_near(const Address& peer) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  bool near = false;
  for (const ifaddrs* one = list; one != nullptr && !near; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr) continue;
    if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
    near = same_subnet(one->ifa_addr, peer.get(), one->ifa_netmask);
  }
  ::freeifaddrs(list);
  return near;
}

/** What no later try will mend is not taken for a peer that is not there yet. */
Fd new_socket(int fd, const char* call) {
  if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
    throw Error(ErrorKind::os_resource, "tcp: " + errno_text(call, errno),
                "raise the limit of open files (ulimit -n), or use fewer ranks");
  }
  return Fd(fd);
}

void set(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

}  // namespace

Address parse_address(const std::string& text, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw Error(ErrorKind::usage, fmt::format("tcp: '{}' is no numeric address", text));
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

Listener listen_on(const std::string& text) {
  Address address = parse_address(text, 0);
  Listener listener{Fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  const int fd = listener.fd.get();
  if (!listener.fd.valid() || ::bind(fd, address.get(), address.length) != 0 ||
      ::listen(fd, SOMAXCONN) != 0 || ::getsockname(fd, address.get(), &address.length) != 0) {
    throw Error(ErrorKind::os_resource,
                fmt::format("tcp: cannot listen on {}: {}", text, std::strerror(errno)),
                "it must be an address of this machine");
  }
  listener.port = static_cast<std::uint16_t>(port_of(address.storage));
  return listener;
}

Fd start_connect(const std::string& from, const Address& to) {
  Fd fd = new_socket(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket");
  if (!fd.valid()) return fd;
  const Address local = parse_address(from, 0);
  // A port is chosen only when connecting: a machine has more pairs of ports than ports.
  set(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  const bool same_family = local.storage.ss_family == to.storage.ss_family;
  if (same_family && ::bind(fd.get(), local.get(), local.length) != 0) return {};
  if (::connect(fd.get(), to.get(), to.length) != 0 && errno != EINPROGRESS) return {};
  return fd;
}

Fd accept_next(const Fd& listener) {
  return new_socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK), "accept");
}

void tune(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // A machine that vanished is noticed while both sides wait. TCP_USER_TIMEOUT is left alone: it would also end
  // connections to a peer that computes for long before it reads.
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 6);
  Address peer;
  peer.length = sizeof peer.storage;
  if (::getpeername(fd, peer.get(), &peer.length) != 0 || !is_near(peer)) return;
  // bbr, the default of some kernels, paces its packets, which halves the speed of a loopback.
  static constexpr std::string_view kReno = "reno";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

}  // namespace dtorch::tcp
