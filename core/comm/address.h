// Which network address a rank's connections are bound to.
#pragma once
#include <string>

#include "core/comm/backend_factory.h"

namespace dtorch {

/**
 * The numeric address to bind: `wanted` when given (an interface's name or an address of this machine);
 * loopback when all ranks are on this host (found out through the store, so all ranks must call); else the
 * address that routes to the store's master (on the master's machine: to a rank elsewhere), or the first one that is not
 * loopback, and says so in the log. Throws Error(spec) for an unknown interface, Error(os_resource) when only loopback is there, PeerError(timeout) naming the ranks that
 * have not come.
 */
std::string choose_address(const StorePtr& store, int rank, int world_size, const std::string& wanted,
                           Deadline deadline);

/** Waits for a key of each rank, `prefix/<rank>`, and returns their values in rank order. */
std::vector<std::string> gather_keys(const StorePtr& store, const std::string& prefix, int world_size,
                                     Deadline deadline);

}  // namespace dtorch
