// Everyone's connections to everyone.
#pragma once
#include <string>
#include <vector>

#include "backends/tcp/engine/frame.h"
#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "core/bytes/plain_store.h"

namespace dtorch::tcp {

struct Mesh {
  int rank = 0;
  int world = 1;
  std::uint64_t token = 0;
  int local_ranks = 1;         ///< of this host, this one too
  std::vector<Fd> collective;  ///< by rank; none to itself
  std::vector<Fd> direct;

  FrameRules rules(int peer, Channel channel) const { return {token, peer, world, channel}; }
};

/** As connect_tcp. */
Mesh connect_mesh(PlainStore& store, int rank, int world, const std::string& bind_address, Deadline deadline);

}  // namespace dtorch::tcp
