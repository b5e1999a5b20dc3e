// Sockets: numeric addresses, non-blocking descriptors, the options of a connection between ranks.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "core/base/fd.h"

namespace dtorch::tcp {

/** A numeric IPv4 or IPv6 address with a port. */
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/** Throws Error(usage) for what is no numeric address. */
Address parse_address(const std::string& text, std::uint16_t port);

struct Listener {
  Fd fd;
  std::uint16_t port = 0;
};
/** On any free port. Throws Error(os_resource). */
Listener listen_on(const std::string& address);

/** A connection under way, from `from` (numeric) so that it leaves by that interface; invalid if it failed at once. Throws
 * Error(os_resource) for want of descriptors or memory. */
Fd start_connect(const std::string& from, const Address& to);
/** The next connection, non-blocking; invalid if there is none. Throws as start_connect. */
Fd accept_next(const Fd& listener);

/** No delay, keepalive, and no pacing where the peer is near. Failures are ignored: they cost speed only. */
void tune(int fd);

}  // namespace dtorch::tcp
