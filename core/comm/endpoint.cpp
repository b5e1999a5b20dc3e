#include "core/comm/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/port_owner.h"
#include "core/comm/url.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;
using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/** Null and a reason when the name cannot be resolved (now). */
AddressList resolve(const std::string& host, int port, int flags, std::string& reason) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    reason = code == EAI_SYSTEM ? errno_text("getaddrinfo", errno) : ::gai_strerror(code);
    return {nullptr, ::freeaddrinfo};
  }
  return {found, ::freeaddrinfo};
}

std::string numeric_host(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text.data();
}

/** 0 for what is no IP address. */
int port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

bool loopback_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

/** 0, or the errno value of the failed connect. */
int try_connect(const addrinfo& address, Deadline deadline) {
  const Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!fd.valid()) return errno;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd wait{fd.get(), POLLOUT, 0};
  int ready = 0;
  do {
    ready = ::poll(&wait, 1, deadline.poll_ms());
  } while ((ready < 0 && errno == EINTR) || (ready == 0 && !deadline.expired()));
  if (ready <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

std::string describe(int error) {
  switch (error) {
    case ECONNREFUSED: return "connection refused (nothing listens there)";
    case ETIMEDOUT: return "no answer (connection timed out)";
    default: return std::strerror(error);
  }
}

constexpr auto kFirstRetry = 5ms;
constexpr auto kLongestRetry = 250ms;
constexpr auto kOneAttempt = 5s;
constexpr auto kProgressEvery = 3s;

}  // namespace

bool is_loopback(const std::string& host) {
  std::string reason;
  const auto list = resolve(host, 0, 0, reason);
  if (!list) return false;
  for (const auto* at = list.get(); at != nullptr; at = at->ai_next) {
    if (!loopback_address(at->ai_addr)) return false;
  }
  return true;
}

std::string reach(const std::string& host, int port, Deadline deadline) {
  std::string last = "not tried";
  std::chrono::milliseconds pause = kFirstRetry;
  auto next_progress = Clock::now() + kProgressEvery;
  while (true) {
    std::string reason;
    const auto list = resolve(host, port, 0, reason);
    if (!list) last = fmt::format("name not found ({})", reason);
    for (const auto* at = list.get(); at != nullptr; at = at->ai_next) {
      const Deadline attempt(std::min(deadline.at(), Clock::now() + kOneAttempt));
      const int error = try_connect(*at, attempt);
      auto address = numeric_host(at->ai_addr, at->ai_addrlen);
      if (error == 0) return address;
      last = describe(error);
      if (address != host) last = fmt::format("{}: {}", address, last);
    }
    if (deadline.remaining() <= pause) break;
    if (Clock::now() >= next_progress) {
      log_info(fmt::format("waiting for the store at {}: {}", endpoint_text(host, port), last));
      next_progress += kProgressEvery;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::milliseconds>(pause * 2, kLongestRetry);
  }
  std::string help = "is rank 0 (or the launcher) running there, and does a firewall let the port through?";
  if (is_loopback(host)) {
    help = fmt::format(
        "'{}' is always this machine itself: where rank 0 runs on another one, give its name or address",
        host);
  }
  throw Error(ErrorKind::timeout,
              fmt::format("no store could be reached at {}: {}", endpoint_text(host, port), last), help);
}

namespace {

/** A bound, listening socket, or -1 and errno. */
Fd try_listen(const addrinfo& address) {
  Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, address.ai_protocol));
  if (!fd.valid()) return fd;
  const int yes = 1;
  const int no = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (address.ai_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  if (::bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

[[noreturn]] void cannot_listen(const std::string& host, int port, int error) {
  auto message = fmt::format("cannot listen at {}: {}", endpoint_text(host, port), std::strerror(error));
  if (error != EADDRINUSE) throw Error(ErrorKind::os_resource, message);
  const auto owner = port_owner(port);
  message = owner.empty() ? fmt::format("port {} is in use, by a process that this user cannot see", port)
                          : fmt::format("port {} is in use by {}", port, owner);
  throw Error(ErrorKind::os_resource, message, "end that process, or choose another port (0: any free one)");
}

Fd listen_everywhere(const std::string& host, int port) {
  int error = 0;
  for (const char* any : {"::", "0.0.0.0"}) {
    std::string reason;
    const auto list = resolve(any, port, AI_NUMERICHOST, reason);
    if (!list) continue;
    auto fd = try_listen(*list);
    if (fd.valid()) return fd;
    error = errno;
    if (error == EADDRINUSE) break;
  }
  cannot_listen(host, port, error);
}

/** Both loopbacks of a name must be free: a client may try either first, and must not meet a stranger there.
 */
Fd listen_on_any(const AddressList& list, const std::string& host, int port) {
  Fd chosen;
  int error = 0;
  for (const auto* at = list.get(); at != nullptr; at = at->ai_next) {
    auto fd = try_listen(*at);
    if (!fd.valid()) error = errno;
    if (error == EADDRINUSE) break;
    if (fd.valid() && !chosen.valid()) chosen = std::move(fd);
  }
  if (error == EADDRINUSE || !chosen.valid()) {
    chosen.reset();
    errno = error;
    if (error != EADDRNOTAVAIL || is_loopback(host)) cannot_listen(host, port, error);
  }
  return chosen;
}

}  // namespace

Fd listen_at(const std::string& host, int port) {
  std::string reason;
  auto list = resolve(host, port, AI_NUMERICHOST, reason);
  if (!list) {
    const bool local_name = host == "localhost" || host.ends_with(".localhost");
    if (local_name) list = resolve(host, port, 0, reason);
    if (!list) return listen_everywhere(host, port);
  }
  auto fd = listen_on_any(list, host, port);
  if (fd.valid()) return fd;
  log_warning(
      fmt::format("{} is no address of this machine (NAT?): the store listens on all interfaces", host));
  return listen_everywhere(host, port);
}

LocalEndpoint local_endpoint(int listen_fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(listen_fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw Error(ErrorKind::os_resource, errno_text("getsockname", errno));
  }
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    const bool any = v4->sin_addr.s_addr == htonl(INADDR_ANY);
    return {any ? "127.0.0.1" : numeric_host(generic, length), port_of(address)};
  }
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    const bool any = IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) != 0;
    int v6only = 0;
    socklen_t size = sizeof(v6only);
    ::getsockopt(listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, &size);
    const std::string loopback = v6only != 0 ? "::1" : "127.0.0.1";
    return {any ? loopback : numeric_host(generic, length), port_of(address)};
  }
  throw Error(ErrorKind::os_resource, "the store's socket is not a TCP socket");
}

void limit_silence(int port, std::chrono::milliseconds limit) {
  const timeval wait{limit.count() / 1000, (limit.count() % 1000) * 1000};
  const auto unacknowledged = static_cast<unsigned int>(limit.count());
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (port_of(peer) != port) continue;
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof(unacknowledged));
  }
}

}  // namespace dtorch
