// Collectives among the processes of one host, through memory they share.
#pragma once
#include <memory>
#include <string>

#include "backends/shm/engine/memory.h"
#include "core/base/deadline.h"
#include "core/bytes/byte_collectives.h"
#include "core/bytes/plain_store.h"

namespace dtorch::shm {

inline constexpr int kMaxWorld = 64;

struct Options {
  /** How a shared memory file is mapped. Ranks that are threads of one program may share one mapping, so that
   * ThreadSanitizer sees what they do to each other. */
  Mapper map = map_shared;
};

/**
 * Joins `world` ranks (1 to 64) of one host; blocks until all are connected. Nothing has a name in /dev/shm or
 * elsewhere: memory is passed from hand to hand over a Unix socket whose random name comes through the store,
 * and it is gone with the last process. One group uses a store (or a prefix of it) once.
 *
 * Throws Error(spec) on all ranks when they are not on the same host, PeerError(timeout) with the ranks that
 * did not come, PeerError(lost) when one ends meanwhile, Error(os_resource) when memory or descriptors are short.
 */
std::unique_ptr<ByteCollectives> connect_shm(PlainStore& store, int rank, int world, Deadline deadline,
                                             const Options& options = {});

}  // namespace dtorch::shm
