// Why a group has failed, and the bell that wakes whoever waits.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>

#include "core/base/fd.h"
#include "core/bytes/peer_error.h"

namespace dtorch::tcp {

/** Any thread. */
class Fate {
 public:
  /** Throws Error(os_resource). */
  Fate();

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /** Throws the first failure, if there was one. */
  void check() const;
  /** Whether this is the first failure; only that is kept. */
  bool fail(const PeerError& error);
  /** Readable once failed. */
  int bell() const { return bell_.get(); }

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::optional<PeerError> first_;
  Fd bell_;
};

}  // namespace dtorch::tcp
