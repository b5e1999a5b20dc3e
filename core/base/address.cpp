#include "core/base/address.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace dtorch {
namespace {

/** 0.0.0.0 and ::, connected to, are this machine as well. */
bool loopback_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto number = ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
    return number >> 24 == 127 || number == INADDR_ANY;
  }
  if (address->sa_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool all_loopback(const AddressList& list) {
  for (const auto* at = list.get(); at != nullptr; at = at->ai_next) {
    if (!loopback_address(at->ai_addr)) return false;
  }
  return list != nullptr;
}

}  // namespace

AddressList resolve(const std::string& host, int port, int flags, LookupFailure& failure) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code == 0) return {found, ::freeaddrinfo};
  failure.reason = code == EAI_SYSTEM ? errno_text("getaddrinfo", errno) : ::gai_strerror(code);
  failure.temporary = code == EAI_AGAIN || code == EAI_SYSTEM;
  return {nullptr, ::freeaddrinfo};
}

std::string numeric_host(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

int port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  LookupFailure failure;
  return all_loopback(resolve(host, 0, AI_NUMERICHOST, failure));
}

bool leads_to_loopback(const std::string& host) {
  LookupFailure failure;
  return all_loopback(resolve(host, 0, 0, failure));
}

std::string route_to(const std::string& host) {
  LookupFailure failure;
  const auto list = host.empty() ? AddressList(nullptr, ::freeaddrinfo) : resolve(host, 9, 0, failure);
  for (const auto* at = list.get(); at != nullptr; at = at->ai_next) {
    // Connecting a datagram socket sends nothing; it only chooses the way.
    const Fd socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    auto* name = reinterpret_cast<sockaddr*>(&local);
    if (socket.valid() && ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), name, &length) == 0) {
      return numeric_host(name, length);
    }
  }
  return {};
}

}  // namespace dtorch
