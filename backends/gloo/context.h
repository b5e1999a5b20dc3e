// A connected Gloo context: every rank a pair of sockets to every other.
#pragma once
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/gloo/watched.h"
#include "core/comm/backend_factory.h"

namespace dtorch::gloo_backend {

/** Reports for itself what Gloo's own rendezvous does not: which rank has not come, within a deadline. */
class MeshContext : public gloo::Context {
 public:
  MeshContext(int my_rank, int world) : gloo::Context(my_rank, world) {}

  /** Listens, exchanges addresses through the store, connects to all. Throws PeerError(timeout, lost). */
  void connect(const StorePtr& store, const std::string& address, Deadline deadline);

  /** Ends all connections with an error and wakes whoever waits on one in any thread. Idempotent. */
  void cut();
  /** Ranks whose connection has ended, for whatever reason. Any thread. */
  std::vector<int> lost_ranks();
  /** Wakes those waits that such a rank would have to end. Any thread. */
  void wake_orphans();

 private:
  bool is_broken(int peer);

  std::shared_ptr<WatchedTransport> transport_;
};

}  // namespace dtorch::gloo_backend
