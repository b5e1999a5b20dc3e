#include "core/base/listen.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/base/address.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/port_owner.h"

namespace dtorch {
namespace {

/** A bound, listening socket, or none and errno. */
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

Listener listener(Fd fd) {
  const int port = local_endpoint(fd.get()).port;
  return {std::move(fd), port};
}

[[noreturn]] void cannot_listen(const Endpoint& endpoint, int error) {
  if (error != EADDRINUSE) {
    throw Error(ErrorKind::os_resource,
                errno_text(fmt::format("cannot listen on {}", to_string(endpoint)), error));
  }
  const std::string owner = port_owner(endpoint.port);
  throw Error(ErrorKind::os_resource,
              fmt::format("port {} on {} is already in use by {}", endpoint.port, endpoint.host,
                          owner.empty() ? "a process that this user cannot see" : owner),
              "end that process, or choose another port (0: any free one)");
}

[[noreturn]] void refuse(const std::string& host) {
  throw Error(ErrorKind::os_resource, fmt::format("{} is not an address of this machine", host),
              "node 0 must run on the host that the address names");
}

Listener listen_everywhere(const Endpoint& endpoint) {
  int error = 0;
  for (const char* any : {"::", "0.0.0.0"}) {
    LookupFailure failure;
    const auto list = resolve(any, endpoint.port, AI_NUMERICHOST, failure);
    if (!list) continue;
    auto fd = try_listen(*list);
    if (fd.valid()) return listener(std::move(fd));
    error = errno;
    if (error == EADDRINUSE) break;
  }
  cannot_listen(endpoint, error);
}

/** A literal, or localhost. All its addresses must be free: a client may try either first, and must not meet a stranger. */
Listener listen_there(const AddressList& list, const Endpoint& endpoint, Foreign foreign) {
  Fd chosen;
  int error = 0;
  for (const auto* at = list.get(); at != nullptr; at = at->ai_next) {
    auto fd = try_listen(*at);
    if (!fd.valid()) error = errno;
    if (error == EADDRINUSE) cannot_listen(endpoint, error);
    if (fd.valid() && !chosen.valid()) chosen = std::move(fd);
  }
  if (chosen.valid()) return listener(std::move(chosen));
  if (error != EADDRNOTAVAIL || is_loopback(endpoint.host)) cannot_listen(endpoint, error);
  if (foreign == Foreign::refuse) refuse(endpoint.host);
  log_warning(fmt::format("{} is no address of this machine (NAT?): the store listens on all interfaces",
                          endpoint.host));
  return listen_everywhere(endpoint);
}

/** Whether any address of the name is this machine's. Throws where the name is unknown. */
bool leads_here(const std::string& host) {
  LookupFailure failure;
  const auto list = resolve(host, 0, 0, failure);
  if (!list) {
    throw Error(ErrorKind::os_resource, fmt::format("cannot look up '{}': {}", host, failure.reason),
                "name this machine's address in init_method or --master-addr");
  }
  for (const auto* at = list.get(); at != nullptr; at = at->ai_next) {
    if (try_listen(*at).valid()) return true;
  }
  return false;
}

}  // namespace

Listener listen_on(const Endpoint& endpoint, Foreign foreign) {
  LookupFailure failure;
  auto list = resolve(endpoint.host, endpoint.port, AI_NUMERICHOST, failure);
  if (!list && is_loopback(endpoint.host)) list = resolve(endpoint.host, endpoint.port, 0, failure);
  if (list) return listen_there(list, endpoint, foreign);
  if (foreign == Foreign::refuse && !leads_here(endpoint.host)) refuse(endpoint.host);
  return listen_everywhere(endpoint);
}

Endpoint local_endpoint(int listen_fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(listen_fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw Error(ErrorKind::os_resource, errno_text("getsockname", errno));
  }
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (address.ss_family == AF_INET) {
    const bool any = reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
    return {any ? "127.0.0.1" : numeric_host(generic, length), port_of(address)};
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    const bool any = IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) != 0;
    int v6only = 0;
    socklen_t size = sizeof(v6only);
    ::getsockopt(listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, &size);
    const std::string loopback = v6only != 0 ? "::1" : "127.0.0.1";
    return {any ? loopback : numeric_host(generic, length), port_of(address)};
  }
  throw Error(ErrorKind::os_resource, "the store's socket is not a TCP socket");
}

}  // namespace dtorch
