// Connections to the TCP store.
#pragma once
#include <chrono>
#include <string>

#include "core/base/deadline.h"
#include "core/base/endpoint.h"

namespace dtorch {

/**
 * Waits until something accepts connections at the endpoint, trying every address of the name, again and again:
 * the server may start later than we do, DNS may be slow. Returns the numeric address that answered. Throws
 * Error(timeout) with the endpoint and the last failure (refused, no route, name not found).
 */
std::string reach(const Endpoint& endpoint, Deadline deadline);

/**
 * Bounds every later wait on this process's TCP connections to that port whose owner offers no deadline: a
 * read or write that makes no progress for so long fails. A peer that vanished without a word is noticed so.
 */
void limit_silence(int port, std::chrono::milliseconds limit);

}  // namespace dtorch
