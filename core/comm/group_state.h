// The inside of a ProcessGroup: numbering, the ring of recent calls, failure. Shared by its sources, not for
// others.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <deque>
#include <mutex>

#include "core/comm/checks.h"
#include "core/comm/process_group.h"

namespace dtorch {

/** One call, as the ring keeps it; text is made only when somebody asks. */
struct RingEntry {
  CallSignature signature;
  std::uint64_t bytes = 0;
  Clock::time_point started;
  WorkPtr work;

  CollectiveRecord record() const;
};

/** What becomes of the calls of one group. Thread-safe. Works keep it alive. */
struct ProcessGroup::Impl : std::enable_shared_from_this<ProcessGroup::Impl> {
  using Start = std::function<WorkPtr(Call)>;

  Impl(const BackendFactory& factory_in, StorePtr store_in, int rank_in, int size_in,
       ProcessGroupOptions options_in);

  /** Numbers a call, enters it in the ring, starts it on the backend. `finish` runs when it has succeeded. */
  WorkPtr launch(CallSignature signature, std::uint64_t bytes, Deadline deadline, const Start& start,
                 std::function<void()> finish = {}, bool agreed = false);
  WorkPtr launch(CallSignature signature, const at::Tensor& tensor, const Start& start,
                 std::function<void()> finish = {}, bool agreed = false);
  /** Called by the first failing wait; blocks up to about a second, poisons, throws. */
  [[noreturn]] void fail(const RingEntry& entry, const std::exception_ptr& error,
                         const std::vector<int>& waiting_for);
  void close(const std::string& reason);
  void abort(const std::string& reason);
  void throw_if_poisoned() const;
  /** The oldest call under way, or null. With the mutex held. */
  const RingEntry* unfinished() const;
  CheckContext checking(std::string_view operation) const;

  const BackendFactory& factory;
  const StorePtr parent_store;  ///< what sub-groups are made from
  const StorePtr store;         ///< prefixed by the group's name
  const int rank;
  const int size;
  const ProcessGroupOptions options;
  std::unique_ptr<Backend> backend;
  std::atomic<std::int64_t> waited_ns{0};

  mutable std::mutex mutex;
  std::deque<RingEntry> ring;                 // guarded by mutex
  std::uint64_t sequence = 0;                 // guarded by mutex
  std::uint64_t point_to_point_sequence = 0;  // guarded by mutex
  int group_count = 0;                        // guarded by mutex
  std::optional<CollectiveError> poison;      // guarded by mutex
  std::vector<std::weak_ptr<Impl>> children;  // guarded by mutex

  std::mutex failing;  ///< held while the first failure is looked into
};

}  // namespace dtorch
