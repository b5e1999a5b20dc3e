// What a rank leaves in the store when a collective fails, so that the others can tell the first cause from
// its consequences.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/comm/backend_factory.h"

namespace dtorch {

/** How a collective ended on one rank. */
struct FailureNote {
  int rank = 0;
  ErrorKind kind = ErrorKind::lost;
  std::string message;
  std::vector<int> ranks;      ///< lost or missing ranks, as far as that rank knows
  std::uint64_t sequence = 0;  ///< the collective it was in
  std::string call;            ///< describe() of it
};

/** Publishes a note under the writer's rank. Blocks for as long as the store takes; throws what the store
 * throws. */
void publish_note(const StorePtr& store, const FailureNote& note);

/** The notes of these ranks that are there, or come before the deadline; returns early once `enough`. Throws
 * as the store. */
std::map<int, FailureNote> read_notes(const StorePtr& store, const std::vector<int>& ranks, Deadline deadline,
                                      const std::function<bool(const std::map<int, FailureNote>&)>& enough);

}  // namespace dtorch
