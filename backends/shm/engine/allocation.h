// The collective behind allocate(): rank 0 makes the memory and hands it round.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backends/shm/engine/memory.h"
#include "core/base/deadline.h"

namespace dtorch::shm {

/** A region of `bytes` (whole pages) a rank. sockets: by rank, between rank 0 and each other. Throws PeerError as
 * collectives do, Error(os_resource) on all ranks when rank 0 finds no memory. */
std::shared_ptr<Region> share_region(std::span<const Fd> sockets, const Mapper& map, int rank,
                                     std::uint32_t id, std::size_t bytes, Deadline deadline);

}  // namespace dtorch::shm
