// The listening socket of a job's store.
#pragma once
#include "core/base/endpoint.h"
#include "core/base/fd.h"

namespace dtorch {

struct Listener {
  Fd socket;     ///< bound, listening, close-on-exec
  int port = 0;  ///< the real one
};

/** What becomes of a name or address that does not lead to this machine (NAT, a service's address, a wrong machine). */
enum class Foreign { refuse, listen_everywhere };

/**
 * Binds and listens for the store of a job that names this endpoint; port 0 is any free one. An address literal is bound as
 * it is, localhost to loopback, another name to all interfaces: what it is here (127.0.1.1 for this machine's own name, on
 * Debian) is not what it is elsewhere. Throws Error(os_resource): port in use (names the process that holds it, if it can be
 * seen), or, where Foreign says so, address of another machine, unknown name. Blocks for looking a name up.
 */
Listener listen_on(const Endpoint& endpoint, Foreign foreign);

/** Where a connection to this listening socket from the same machine goes. Throws Error(os_resource). */
Endpoint local_endpoint(int listen_fd);

}  // namespace dtorch
