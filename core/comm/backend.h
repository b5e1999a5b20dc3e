// What a communication library must offer to carry a process group. Small and complete: no method may be left
// out. Follows the operations of PyTorch's torch.distributed; a ProcessGroup (process_group.h) is the only
// caller.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/bytes/peer_error.h"
#include "core/bytes/reduce_op.h"
#include "core/bytes/signature.h"

namespace at {
class Tensor;
}

namespace dtorch {

/**
 * A collective under way. Owns the tensors it works on. Thread-safe.
 * Dropping the last reference to unfinished Work does not cancel it.
 */
class Work {
 public:
  virtual ~Work() = default;
  /** When it ended, well or badly; nothing while it is under way. */
  virtual std::optional<Clock::time_point> completed_at() const = 0;
  bool is_completed() const { return completed_at().has_value(); }
  /** Ranks that have not come to it yet, as far as is known (empty: nothing is). */
  virtual std::vector<int> waiting_for() const = 0;
  /**
   * Blocks until done. Throws what went wrong: Error(timeout) at the deadline, Error(lost) when a peer is
   * gone or the group was aborted, Error(disagree) when ranks called different collectives. A failed wait on
   * a ProcessGroup's Work poisons the group; a backend's own Work leaves that to the ProcessGroup.
   */
  virtual void wait(Deadline deadline) = 0;
  /** The same with the deadline that the operation was started with. */
  void wait() { wait(Deadline(Clock::time_point::max())); }
};
using WorkPtr = std::shared_ptr<Work>;

/**
 * One call to a backend. Unless `agreed`, the backend makes sure that all ranks' signatures agree() before
 * data moves, and throws PeerError(disagree, disagreement(...)) if not. send and recv have a signature too:
 * what the two ends must agree on.
 */
struct Call {
  CallSignature signature;  ///< its sequence number is the group's, from 1, equal on all ranks
  Deadline deadline;        ///< when to give up, even if nobody waits
  bool agreed = false;      ///< the ranks have agreed on shapes beforehand
  std::function<void()>
      finish;  ///< run by the backend once the operation has succeeded, before its Work completes
};

/**
 * One rank's end of a group's communication. Calls come from one thread at a time and in the same order on
 * every rank; abort() may come from any thread at any time. Tensors are contiguous, on a device the backend
 * takes, of a dtype in {float16, bfloat16, float32, float64, int8, int32, int64, uint8, bool}, with any
 * number of elements, 0 too; arguments have been validated. "world" is the group's size, "rank" the rank in
 * the group. What a library cannot do is refused by name: Error(usage).
 */
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /** Which tensors it moves: "cpu" or "cuda". */
  virtual std::string_view device() const = 0;

  /** In place. */
  virtual WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op, Call call) = 0;
  /** The result is in root's tensor; the others' are left unchanged. */
  virtual WorkPtr reduce(const at::Tensor& tensor, int root, ReduceOp op, Call call) = 0;
  virtual WorkPtr broadcast(const at::Tensor& tensor, int root, Call call) = 0;
  /** output holds world × input's elements, rank after rank. */
  virtual WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, Call call) = 0;
  /** output as in all_gather, on root only; elsewhere an undefined tensor. */
  virtual WorkPtr gather(const at::Tensor& output, const at::Tensor& input, int root, Call call) = 0;
  /** input holds world × output's elements on root; elsewhere an undefined tensor. */
  virtual WorkPtr scatter(const at::Tensor& output, const at::Tensor& input, int root, Call call) = 0;
  /** input holds world × output's elements; rank r receives the reduction of everyone's part r. */
  virtual WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                                 Call call) = 0;
  /** Elements for / from each rank, in rank order; sums equal the tensors' sizes. */
  virtual WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input,
                             std::span<const std::int64_t> output_counts,
                             std::span<const std::int64_t> input_counts, Call call) = 0;
  virtual WorkPtr send(const at::Tensor& tensor, int destination, int tag, Call call) = 0;
  virtual WorkPtr recv(const at::Tensor& tensor, int source, int tag, Call call) = 0;
  virtual WorkPtr barrier(Call call) = 0;

  /** Wakes every waiter with Error(lost, reason); every later call fails so too. Idempotent, any thread. */
  virtual void abort(const std::string& reason) = 0;
  /** Memory that collectives move without a copy, zeroed and page-aligned; null when the library has nothing
   * better. */
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /** One piece of zeroed memory that all ranks see: what one writes, the others may read after the next
   * collective. Called in the same order on every rank; blocks; null where ranks have none in common. */
  virtual std::shared_ptr<void> allocate_common(std::size_t bytes) = 0;
};

}  // namespace dtorch
