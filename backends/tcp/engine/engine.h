// The tcp transport: collectives on plain memory over sockets, without libtorch.
#pragma once
#include <memory>
#include <string>

#include "core/bytes/byte_collectives.h"
#include "core/bytes/plain_store.h"

namespace dtorch {

/**
 * Joins a group: listens on `bind_address` (a numeric IPv4 or IPv6 address of this machine, any free port),
 * leaves address and port in the store, and connects to every other rank. Blocks until all ranks are connected;
 * PeerError(timeout) at the deadline names those that are not, Error(os_resource) says that the address cannot be
 * bound. Whoever else connects meanwhile is turned away. The store is not used afterwards.
 *
 * All memory is sent and received by the calling thread; one thread more is started by the first send or recv, or
 * when a connection breaks. allocate() and allocate_common() give null. SIGPIPE is never raised.
 */
std::unique_ptr<ByteCollectives> connect_tcp(PlainStore& store, int rank, int world,
                                             const std::string& bind_address, Deadline deadline);

}  // namespace dtorch
