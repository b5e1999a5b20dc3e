// How the ranks of a group find each other and come to share memory.
#pragma once
#include <cstddef>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "core/bytes/plain_store.h"

namespace dtorch::shm {

/** What a connected rank holds. */
struct Connection {
  Fd memory;                  ///< the group's, the same file on every rank
  Fd own_end;                 ///< closing it (or dying) tells the others that this rank is gone
  std::vector<Fd> lifelines;  ///< by rank: hangs up when that rank is gone; none for this rank
  std::vector<Fd> sockets;    ///< by rank, between rank 0 and each other
};

/** See connect_shm(). `bytes` of memory, of which `reserved` are taken at once. */
Connection connect(PlainStore& store, int rank, int world, std::size_t bytes, std::size_t reserved,
                   Deadline deadline);

}  // namespace dtorch::shm
