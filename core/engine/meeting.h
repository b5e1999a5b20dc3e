// How the ranks that this library runs look for each other.
#pragma once
#include <string>

#include "core/comm/environment.h"
#include "core/comm/rendezvous.h"
#include "core/engine/digest.h"
#include "core/engine/rank_control.h"

namespace dtorch::engine {

/** What a rank asks rendezvous() for. `init_method` is the job's; the digest is what all ranks must have in common. */
RendezvousRequest rendezvous_request(const RankControl& control, const RankEnvironment& environment,
                                     const std::string& init_method, JobDigest digest, Deadline deadline);

}  // namespace dtorch::engine
