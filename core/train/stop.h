// How ranks agree on the step to stop after, without a collective in each step.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/comm/backend_factory.h"

namespace dtorch {

/**
 * Ranks in data-parallel training are at most one step apart: a step's gradients need everyone's. A watcher
 * thread on each rank looks at the store for a wish to stop (its own rank's flag, or another's key). Once it
 * sees one, it freezes the number of steps that its rank has begun and publishes it; from then on the
 * training thread begins no step before it knows every rank's number, and begins only those up to their
 * maximum. So all ranks end after the same step, whichever of them were asked. begin_step() costs one
 * uncontended lock while nobody wants to stop.
 */
class StopAgreement {
 public:
  /** `requested` may be null (only other ranks are asked); it must outlive this. `timeout` bounds the
   * agreement itself. */
  StopAgreement(StorePtr store, int rank, int world_size, const std::atomic<bool>* requested,
                std::chrono::milliseconds timeout);
  /** Waits up to 200 ms for the watcher. */
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  /**
   * Whether the step after `done` finished ones is to be run; false: all ranks stop here. Call before each
   * step, on one thread. Blocks (only during a stop) until every rank has answered; throws Error(timeout)
   * naming those that did not, Error(lost) when the store is gone.
   */
  bool begin_step(std::int64_t done);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  ///< shared with the watcher, which may be held by a store that is silent
};

}  // namespace dtorch
