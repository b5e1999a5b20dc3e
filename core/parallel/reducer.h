// Averages gradients over a group while backward() runs: torch's c10d Reducer, over a dtorch ProcessGroup.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/comm/process_group.h"
#include "core/parallel/buckets.h"
#include "core/parallel/ddp.h"
#include "core/parallel/hooks.h"
#include "core/parallel/model_state.h"

namespace torch::autograd {
struct Node;
}

namespace dtorch {

struct GradientBucket;

/**
 * Gradients live in buckets: flat tensors in which each parameter's .grad is a slice. A hook on every
 * parameter's gradient accumulator scales the gradient by 1/ranks into its slice (in place if .grad already
 * is the slice); a full bucket is summed over the ranks while backward() goes on, buckets always in the same
 * order; when backward() returns every .grad holds the average. Which collectives run, and how large they
 * are, depends only on what all ranks agreed on when the Reducer was made. A fault thrown by a hook leaves
 * through backward() with its own type.
 *
 * Call from one thread; hooks may come from autograd's threads. Destroy it outside of backward().
 */
class Reducer {
 public:
  /** Those of the parameters that require a gradient take part. Throws Error(usage) if a dtype cannot be
   * averaged. */
  Reducer(const std::vector<NamedTensor>& parameters, ProcessGroupPtr group, const DdpOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /** What the next backward passes do; all ranks that have not joined say the same. */
  struct Pass {
    bool synchronise = true;      ///< false: gradients stay this rank's own (no_sync)
    bool share_used_map = false;  ///< find out together which parameters no rank used
    int divisor = 1;              ///< ranks to average over
  };
  /**
   * Before each forward pass with gradients. Throws Error(usage) naming the parameters without gradient if
   * the previous backward pass did not finish, and again whatever made it fail.
   */
  void prepare(const Pass& pass);
  /** After forward, with find_unused_parameters: what these outputs do not depend on will get no gradient. */
  void note_outputs(const std::vector<at::Tensor>& outputs);
  /** Whether this rank's next pass must share the map of used parameters. */
  bool wants_used_map() const;
  /** As DistributedDataParallel::gradient_buckets(). */
  std::vector<GradientBucket> gradient_buckets() const;
  /** Takes part in the other ranks' backward pass with zeros. Blocks. Afterwards this rank's gradients are
   * meaningless. */
  void shadow(const Pass& pass);

 private:
  struct Slot;  // a parameter
  struct Bucket;

  void add_bucket(BucketPlan&& plan, CommHook hook);
  void add_hook(std::size_t index);
  void on_gradient(std::size_t index);
  void begin_pass();
  void call_back_after_this_task();
  void mark_ready(std::size_t index);
  void mark_unused(std::size_t index);
  void store(Slot& slot);
  void start_full_buckets();
  void share_used_map(const std::vector<std::int32_t>& used);
  void on_backward_done();
  void finish_learning();
  void wait_for_all();
  void publish_gradients();
  [[noreturn]] void throw_too_often(const Slot& slot) const;
  [[noreturn]] void throw_missing() const;

  ProcessGroupPtr group_;
  const bool find_unused_;
  const bool static_graph_;
  const bool prescaled_;  // gradients are divided on their way into the bucket, not by a hook
  const bool alone_;      // one rank and nothing to compress: gradients stay where autograd puts them
  const bool sharded_;    // only this rank's share of each bucket is averaged
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;

  std::mutex mutex_;
  Pass pass_;
  bool learning_;  // static_graph: the first synchronised pass counts hook calls, then averages at its end
  bool active_ = false;          // between the first hook of a backward pass and its end
  std::size_t next_bucket_ = 0;  // first one not started
  int task_with_callback_ = -1;
  std::exception_ptr failure_;
  std::vector<std::size_t> unused_;    // of this forward pass (static_graph: of all)
  std::vector<std::int32_t> used_;     // by this rank since the last reduction; 1: used
  std::vector<std::int32_t> used_by_;  // how many ranks used it
  at::Tensor used_map_;                // on its way
  WorkPtr used_work_;
};

}  // namespace dtorch
