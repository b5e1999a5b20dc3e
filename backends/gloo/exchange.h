// Everyone sends a part to everyone, directly: the step from which agreement, small reductions and point to
// point are made.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "backends/gloo/context.h"
#include "backends/gloo/slots.h"
#include "core/comm/work_queue.h"

namespace dtorch::gloo_backend {

/** How long Gloo itself waits: a little past the deadline, which whoever waits for the Work holds exactly. At
 * least 1 ms. */
std::chrono::milliseconds gloo_timeout(Deadline deadline);

struct Part {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

struct Exchange {
  std::uint64_t send_slot = 0;
  std::uint64_t recv_slot = 0;
  const void* send_base = nullptr;
  void* recv_base = nullptr;
  std::vector<int> peers;        ///< without this rank
  std::vector<Part> send_parts;  ///< one for each of peers
  std::vector<Part> recv_parts;
};

/**
 * Blocks until all parts have been sent and received. `on_arrival` (may be empty) sees each peer as its part
 * comes; if it throws, what peers still want of this rank is given a moment to leave before the exception
 * goes on.
 */
void exchange(MeshContext& context, const Exchange& plan, Deadline deadline, Progress& progress,
              const std::function<void(std::size_t index)>& on_arrival = {});

/** All ranks but this one. */
std::vector<int> all_peers(const MeshContext& context);

}  // namespace dtorch::gloo_backend
