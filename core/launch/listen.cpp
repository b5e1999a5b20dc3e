#include "core/launch/listen.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "core/base/error.h"
#include "core/base/port_owner.h"

namespace dtorch {
namespace {

constexpr int kBacklog = 1024;

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int result =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (result != 0) {
    throw Error(ErrorKind::os_resource,
                fmt::format("cannot look up '{}': {}", endpoint.host, ::gai_strerror(result)),
                "name this machine's address in init_method or --master-addr");
  }
  return AddressList(list, &::freeaddrinfo);
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

[[noreturn]] void throw_bind_error(const Endpoint& endpoint, int error) {
  if (error == EADDRINUSE) {
    const std::string owner = port_owner(endpoint.port);
    throw Error(ErrorKind::os_resource,
                fmt::format("port {} on {} is already in use{}", endpoint.port, endpoint.host,
                            owner.empty() ? "" : " by " + owner),
                "choose another port, or port 0 for any free one");
  }
  if (error == EADDRNOTAVAIL) {
    throw Error(ErrorKind::os_resource, fmt::format("{} is not an address of this machine", endpoint.host),
                "node 0 must run on the host that the address names");
  }
  throw Error(ErrorKind::os_resource,
              errno_text(fmt::format("cannot listen on {}", to_string(endpoint)), error));
}

}  // namespace

Endpoint parse_endpoint(const std::string& text) {
  std::string rest = text.substr(text.rfind("tcp://", 0) == 0 ? 6 : 0);
  rest = rest.substr(0, rest.find_first_of("/?"));
  const std::size_t bracket = rest.rfind(']');
  const std::size_t colon = rest.rfind(':');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  Endpoint endpoint{rest.substr(0, has_port ? colon : rest.size()), 0};
  if (!endpoint.host.empty() && endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (endpoint.host.find(':') != std::string::npos) {
    throw Error(ErrorKind::usage, fmt::format("'{}' has several colons", text),
                fmt::format("write an IPv6 address in brackets: [{}]:PORT", rest));
  }
  const std::string digits = has_port ? rest.substr(colon + 1) : "";
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
  if (endpoint.host.empty() || digits.empty() || error != std::errc() ||
      end != digits.data() + digits.size() || endpoint.port < 0 || endpoint.port > 65535) {
    throw Error(ErrorKind::usage, fmt::format("'{}' is not host:port with a port from 0 to 65535", text));
  }
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool brackets = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", endpoint.host, brackets ? "]" : "", endpoint.port);
}

Listener listen_on(const Endpoint& endpoint) {
  const AddressList addresses = resolve(endpoint);
  int first_error = 0;
  for (const addrinfo* it = addresses.get(); it != nullptr; it = it->ai_next) {
    Fd socket(::socket(it->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    if (socket.valid()) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (socket.valid() && ::bind(socket.get(), it->ai_addr, it->ai_addrlen) == 0 &&
        ::listen(socket.get(), kBacklog) == 0) {
      const int port = bound_port(socket.get());
      return {std::move(socket), port};
    }
    if (first_error == 0 || errno == EADDRINUSE) first_error = errno;
  }
  throw_bind_error(endpoint, first_error);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

}  // namespace dtorch
