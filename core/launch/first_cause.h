// Which of several failures came first. When one rank dies the others fail too, and their complaints may be heard earlier.
#pragma once
#include <optional>

#include "core/base/deadline.h"
#include "core/base/messages.h"

namespace dtorch {

/** What a failure is known from, weakest first: a stronger one that comes soon after is the cause of a weaker one. */
enum class Evidence {
  consequence,  ///< a rank says that a peer has gone
  timed_out,    ///< a rank waited too long for others
  exited,       ///< a process ended with a code and no explanation
  reported,     ///< a rank explains a failure of its own
  killed,       ///< a process was ended by a signal that was not ours
};

/** Collects failures and settles on the cause: the strongest within a short while after the first, then the earliest. */
class FirstCause {
 public:
  void add(const Failure& failure, Evidence evidence, Clock::time_point at);
  bool empty() const { return !best_; }
  /** When the decision is due; a stronger failure may bring it forward. Only if not empty. */
  Clock::time_point due() const;
  /** The cause as far as it is known. What it lacks (the collective, the step) is filled in from the others' complaints. */
  Failure failure() const;

 private:
  std::optional<Failure> best_;
  Evidence evidence_ = Evidence::consequence;
  Clock::time_point first_at_;
  std::string collective_;
  std::int64_t step_ = -1;
};

}  // namespace dtorch
