// The listening socket of a job's store, bound before anything is spawned.
#pragma once
#include <string>

#include "core/base/fd.h"

namespace dtorch {

/** host and port of `tcp://host:port`, `[::1]:29500`, `name`. */
struct Endpoint {
  std::string host;
  int port = 0;
};

/** Reads `host:port`, `[v6]:port` or `tcp://` before either. Throws Error(usage) that says what is wrong. */
Endpoint parse_endpoint(const std::string& text);

/** "host:port", an IPv6 address in brackets. */
std::string to_string(const Endpoint& endpoint);

struct Listener {
  Fd socket;     ///< bound, listening, close-on-exec
  int port = 0;  ///< the real one
};

/**
 * Binds and listens. Port 0 is any free port; a host name must belong to this machine. Throws Error(os_resource): port
 * in use (names the process that holds it, if it can be seen), address of another machine, unknown name.
 */
Listener listen_on(const Endpoint& endpoint);

/** Whether the endpoint can only be reached from this machine. */
bool is_loopback(const std::string& host);

}  // namespace dtorch
