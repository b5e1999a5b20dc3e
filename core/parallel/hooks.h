// How a bucket's gradients travel: the step between a full bucket and its all-reduce (torch's communication
// hooks).
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "core/comm/process_group.h"
#include "core/parallel/ddp.h"

namespace dtorch {

/** "none", "fp16", "bf16". */
std::string_view to_string(CommHook hook);

/**
 * The averaging of one flat tensor of gradients. With CommHook::none the gradients must have been divided by
 * the number of contributing ranks already (while they were copied into the bucket); a compressing hook
 * divides in its own precision, as torch's fp16_compress_hook does. Not thread-safe.
 */
class BucketReduction {
 public:
  /** sharded: only this rank's shard_of() `flat` is averaged; the rest is meaningless then. */
  BucketReduction(at::Tensor flat, CommHook hook, bool sharded);
  /** Starts the reduction. Does not block for long. */
  void start(ProcessGroup& group, int divisor);
  /** Blocks until `flat` holds the averages. Throws what the group throws. */
  void finish(Deadline deadline);

 private:
  at::Tensor flat_;
  at::Tensor wire_;  // what is sent; flat_ itself where nothing is compressed
  CommHook hook_;
  bool sharded_;
  WorkPtr work_;
};

}  // namespace dtorch
