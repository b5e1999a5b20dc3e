// Network addresses: looked up, shown, told apart.
#pragma once
#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <string>

namespace dtorch {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/** Why a name has no addresses: not now (ask again), or not at all. */
struct LookupFailure {
  std::string reason;
  bool temporary = false;
};

/**
 * The TCP addresses of a name or literal; `flags` as for getaddrinfo. Null, and why, when there is none. Blocks as long as
 * the name server does.
 */
AddressList resolve(const std::string& host, int port, int flags, LookupFailure& failure);

/** "192.0.2.1", "fe80::1%eth0"; empty for what is no IP address. */
std::string numeric_host(const sockaddr* address, socklen_t length);
/** 0 for what is no IP address. */
int port_of(const sockaddr_storage& address);

/** localhost, 127.x.y.z, ::1; 0.0.0.0 and ::, which lead here as well: what is loopback without looking it up. */
bool is_loopback(const std::string& host);
/** Whether the name, looked up, leads to loopback addresses only. A name unknown here does not. */
bool leads_to_loopback(const std::string& host);

/** The local address from which packets to `host` would leave; empty if unknown. */
std::string route_to(const std::string& host);

}  // namespace dtorch
