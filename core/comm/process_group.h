// A set of ranks that communicate: torch.distributed's process group, over any Backend.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/backend.h"
#include "core/comm/backend_factory.h"

namespace dtorch {

/** One entry of the ring of recent collectives. */
struct CollectiveRecord {
  std::uint64_t sequence = 0;
  std::string operation;  ///< "all_reduce sum float32[65537]"
  std::uint64_t bytes = 0;
  Clock::time_point started;
  std::optional<Clock::time_point> finished;
};

struct ProcessGroupOptions {
  std::string name = "default";  ///< unique among the groups of a job; prefixes the store's keys
  std::chrono::milliseconds timeout{1'800'000};  ///< default deadline of a collective (PyTorch's: 30 min)
  std::chrono::milliseconds init_timeout{300'000};
  std::string interface;
};

/**
 * Collectives over the ranks of a group. Call them from one thread, in the same order on every rank; that
 * order is checked: a rank that calls something else, or with another type or size, gets Error(disagree)
 * naming both calls. Tensors may be non-contiguous and of any supported dtype. Each collective returns Work;
 * wait() uses the group's timeout unless told otherwise. After a failure the group is poisoned: every later
 * call fails at once with the first reason. Ranks named in arguments are ranks of this group.
 */
class ProcessGroup {
 public:
  /** Connects. Blocks until all ranks of the group have come or init_timeout. */
  ProcessGroup(const BackendFactory& factory, StorePtr store, int rank, int world_size,
               ProcessGroupOptions options);
  /** Closes connections; never communicates, never throws. Unfinished work is aborted. */
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;
  int size() const;
  std::string_view backend_name() const;
  const std::string& name() const;
  std::chrono::milliseconds timeout() const;

  WorkPtr all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::sum);
  /** For callers that have agreed on shapes beforehand (the Reducer): skips the check of agreement where that
   * costs a message. */
  WorkPtr all_reduce_agreed(at::Tensor& tensor, ReduceOp op = ReduceOp::sum);
  WorkPtr reduce(at::Tensor& tensor, int root, ReduceOp op = ReduceOp::sum);
  WorkPtr broadcast(at::Tensor& tensor, int root);
  WorkPtr all_gather(std::vector<at::Tensor>& outputs, const at::Tensor& input);
  WorkPtr all_gather_into_tensor(at::Tensor& output, const at::Tensor& input);
  WorkPtr gather(std::vector<at::Tensor>& outputs, const at::Tensor& input, int root);
  WorkPtr scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs, int root);
  WorkPtr reduce_scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs,
                         ReduceOp op = ReduceOp::sum);
  WorkPtr reduce_scatter_tensor(at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::sum);
  /** As all_reduce_agreed. */
  WorkPtr reduce_scatter_tensor_agreed(at::Tensor& output, const at::Tensor& input,
                                       ReduceOp op = ReduceOp::sum);
  WorkPtr all_to_all(std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);
  /** Splits count rows of dimension 0; empty: even. */
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input,
                            const std::vector<std::int64_t>& output_splits = {},
                            const std::vector<std::int64_t>& input_splits = {});
  WorkPtr send(const at::Tensor& tensor, int destination, int tag = 0);
  WorkPtr recv(at::Tensor& tensor, int source, int tag = 0);
  /** Coalesced: one collective for many tensors of one dtype. */
  WorkPtr all_reduce_coalesced(std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::sum);
  WorkPtr barrier();
  /** Blocks; at the deadline the ranks that came throw Error(timeout) naming every rank that did not. */
  void monitored_barrier(std::optional<std::chrono::milliseconds> timeout = {});

  /** Every rank's bytes, in rank order. Blocks. For small metadata: agreed digests, step counts, names. */
  std::vector<std::string> all_gather_bytes(const std::string& mine);

  /** A group of these ranks, in this order. Collective over *this* group; null on ranks outside the new one. Blocks
   * until they have all come, init_timeout, or an abort of this group. */
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks,
                                          std::optional<std::chrono::milliseconds> timeout = {});

  /** Every later call is refused with Error(usage, reason). Aborts if something is unfinished; else the peers do not
   * notice: those that are still busy get what this rank gave them. Any thread. */
  void close(const std::string& reason);
  /** Wakes all waiters and poisons the group and those made from it. Any thread. */
  void abort(const std::string& reason);
  /** The last collectives, oldest first. Any thread. */
  std::vector<CollectiveRecord> recent() const;
  /** The unfinished collective, if there is one. Any thread. */
  std::optional<CollectiveRecord> current() const;
  /** Time this rank has spent blocked in wait() since the group was made. Any thread. */
  std::chrono::nanoseconds time_waiting() const;

  /** As Backend::allocate. */
  std::shared_ptr<void> allocate(std::size_t bytes);
  /** As Backend::allocate_common. */
  std::shared_ptr<void> allocate_common(std::size_t bytes);

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

using ProcessGroupPtr = std::shared_ptr<ProcessGroup>;

/** A collective that threw says which: carried by Errors that a ProcessGroup throws. */
class CollectiveError : public Error {
 public:
  CollectiveError(ErrorKind kind, const std::string& message, CollectiveRecord record,
                  std::vector<int> missing = {}, std::string help = {}, bool consequence = false)
      : Error(kind, message, std::move(help)),
        record_(std::move(record)),
        missing_(std::move(missing)),
        consequence_(consequence) {}
  const CollectiveRecord& record() const { return record_; }
  /** Ranks known not to have come, for timeouts. */
  const std::vector<int>& missing() const { return missing_; }
  /** This rank failed only because another did: its connection broke, it gave up first, or somebody called
   * abort(). */
  bool consequence() const { return consequence_; }

 private:
  CollectiveRecord record_;
  std::vector<int> missing_;
  bool consequence_;
};

}  // namespace dtorch
