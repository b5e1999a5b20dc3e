// The group's store as a transport sees it: where ranks leave their addresses before they are connected.
#pragma once
#include <string>

#include "core/base/deadline.h"

namespace dtorch {

/** Keys are the group's own. Used by one thread of each rank at a time. */
class PlainStore {
 public:
  virtual ~PlainStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /** Blocks until somebody has set it; Error(timeout) at the deadline, Error(lost) when the store is gone. */
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
};

}  // namespace dtorch
