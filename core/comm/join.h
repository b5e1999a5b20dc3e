// How ranks that share a store agree to be one group: they register, rank 0 counts, everyone hears the same
// verdict.
#pragma once
#include <functional>
#include <string>

#include "core/base/deadline.h"
#include "core/comm/backend_factory.h"

namespace dtorch {

struct JoinRequest {
  StorePtr store;     ///< prefixed by run id and attempt
  std::string where;  ///< for messages: "tcp://host:port"
  int rank = -1;      ///< -1: take the next free one
  int world_size = 1;
  std::string digest;
  std::string digest_text;
  bool outlives = false;  ///< the store may hold dead ranks of an earlier attempt under these keys (torchrun)
  bool serving = false;   ///< the store ends with this process: leave only when the others have heard
  std::function<void()> on_poll;  ///< called again and again while waiting; what it throws ends the wait
  Deadline deadline{Clock::time_point::max()};
};

struct JoinResult {
  int rank = 0;
  std::string generation;  ///< differs each time the group forms: prefix of the group's keys
};

/**
 * Blocks until all ranks are there. Throws as rendezvous() does; what one rank finds wrong, all of them
 * throw.
 *
 * Registration is an add() sequence, so later arrivals are known to be alive. For the earlier ones rank 0
 * calls: whoever answers is alive, whoever does not is left over from an earlier attempt. The verdict names
 * the registrations that form the group.
 */
JoinResult join_ranks(const JoinRequest& request);

}  // namespace dtorch
