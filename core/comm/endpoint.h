// Sockets of the TCP store: reaching one, and binding one.
#pragma once
#include <chrono>
#include <string>

#include "core/base/deadline.h"
#include "core/base/fd.h"

namespace dtorch {

/** Whether the host is a loopback address, or a name that resolves to nothing else. A name unknown here is
 * not. */
bool is_loopback(const std::string& host);

/**
 * Waits until something accepts connections at host:port, trying every address of the name, again and again:
 * the server may start later than we do, DNS may be slow. Returns the numeric address that answered. Throws
 * Error(timeout) with the endpoint and the last failure (refused, no route, name not found).
 */
std::string reach(const std::string& host, int port, Deadline deadline);

/**
 * Binds and listens for the store of a job that names host:port; port 0 is any free one. An address literal
 * is bound as it is, localhost to loopback, another name to all interfaces (it may resolve differently
 * elsewhere). Close-on-exec. Throws Error(os_resource), naming the process that holds the port where it can
 * be seen.
 */
Fd listen_at(const std::string& host, int port);

/**
 * Bounds every later wait on this process's TCP connections to that port whose owner offers no deadline: a
 * read or write that makes no progress for so long fails. A peer that vanished without a word is noticed so.
 */
void limit_silence(int port, std::chrono::milliseconds limit);

/** Where a connection to this listening socket from the same machine goes. */
struct LocalEndpoint {
  std::string host;
  int port = 0;
};
LocalEndpoint local_endpoint(int listen_fd);

}  // namespace dtorch
