#include "core/parallel/hooks.h"

#include <ATen/ATen.h>

#include "core/parallel/flat.h"

namespace dtorch {

std::string_view to_string(CommHook hook) {
  switch (hook) {
    case CommHook::fp16: return "fp16";
    case CommHook::bf16: return "bf16";
    case CommHook::none: break;
  }
  return "none";
}

BucketReduction::BucketReduction(at::Tensor flat, CommHook hook, bool sharded)
    : flat_(std::move(flat)), wire_(flat_), hook_(hook), sharded_(sharded) {
  if (hook == CommHook::none) return;
  const auto type = hook == CommHook::fp16 ? at::kHalf : at::kBFloat16;
  if (flat_.scalar_type() != type) wire_ = at::empty(flat_.sizes(), flat_.options().dtype(type));
}

void BucketReduction::start(ProcessGroup& group, int divisor) {
  if (!wire_.is_same(flat_)) wire_.copy_(flat_);
  if (hook_ != CommHook::none) wire_.div_(divisor);
  if (group.size() == 1) return;
  if (sharded_) {
    auto shard = shard_of(wire_, group);
    work_ = group.reduce_scatter_tensor_agreed(shard, wire_);
  } else {
    work_ = group.all_reduce_agreed(wire_);
  }
}

void BucketReduction::finish(Deadline deadline) {
  if (work_) std::exchange(work_, nullptr)->wait(deadline);
  if (!wire_.is_same(flat_)) flat_.copy_(wire_);
}

}  // namespace dtorch
