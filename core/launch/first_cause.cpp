#include "core/launch/first_cause.h"

namespace dtorch {
namespace {

/** How long a stronger failure may still come after one of this kind. A dying process closes its sockets before it is dead. */
std::chrono::milliseconds patience(Evidence evidence) {
  using std::chrono::milliseconds;
  switch (evidence) {
    case Evidence::consequence:
    case Evidence::timed_out: return milliseconds(150);
    case Evidence::exited: return milliseconds(50);
    case Evidence::reported:
    case Evidence::killed: return milliseconds(0);
  }
  return milliseconds(0);
}

}  // namespace

void FirstCause::add(const Failure& failure, Evidence evidence, Clock::time_point at) {
  if (collective_.empty()) collective_ = failure.collective;
  step_ = std::max(step_, failure.step);
  if (!best_) first_at_ = at;
  if (best_ && evidence <= evidence_) return;
  best_ = failure;
  evidence_ = evidence;
}

Clock::time_point FirstCause::due() const { return first_at_ + patience(evidence_); }

Failure FirstCause::failure() const {
  Failure failure = *best_;
  if (failure.collective.empty()) failure.collective = collective_;
  if (failure.step < 0) failure.step = step_;
  return failure;
}

}  // namespace dtorch
