// The shm backend: ranks of one host through memory they share.
#pragma once
#include "core/comm/backend_factory.h"

namespace dtorch {

const BackendFactory& shm_factory();

/** Whether these ranks are on one host, and not more than shm serves: the same answer on every rank. Every rank calls it;
 * blocks until all have. Throws PeerError(timeout) with those that did not. */
bool can_share_memory(const StorePtr& store, int rank, int world_size, Deadline deadline);
/** The same as far as it can be told beforehand, from how many of the job's ranks this host has. */
bool may_share_memory(int world_size, int local_ranks);

}  // namespace dtorch
