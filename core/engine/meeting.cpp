#include "core/engine/meeting.h"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

namespace dtorch::engine {

RendezvousRequest rendezvous_request(const RankControl& control, const RankEnvironment& environment,
                                     const std::string& init_method, JobDigest digest, Deadline deadline) {
  // For tcp:// our launcher binds the socket, has it served, and says where in the environment.
  const bool served = control.connected() && init_method.rfind("tcp://", 0) == 0;
  return {.init_method = served ? "env://" : init_method,
          .rank = environment.rank,
          .world_size = environment.world_size,
          .run_id = environment.run_id,
          .digest = std::move(digest.value),
          .digest_text = std::move(digest.text),
          .serve = !environment.agent_store,
          .deadline = deadline};
}

}  // namespace dtorch::engine
