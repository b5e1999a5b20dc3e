#include "core/data/batch_pool.h"

#include <ATen/ops/empty.h>

#include <atomic>

namespace dtorch {
namespace {

bool only_ours(const at::Tensor& tensor) {
  if (tensor.use_count() != 1 || tensor.storage().use_count() != 1) return false;
  // Whoever dropped the last other reference did so with a release: see all that they did before.
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

bool is_free(const Batch& batch) { return only_ours(batch.inputs) && only_ours(batch.targets); }

}  // namespace

Batch BatchPool::take() {
  for (const auto& batch : lent_) {
    if (is_free(batch) && untouched(batch)) return batch;
  }
  std::erase_if(lent_, is_free);
  lent_.push_back({at::empty(shape_, at::kFloat), at::empty({shape_.front()}, at::kLong)});
  return lent_.back();
}

bool BatchPool::untouched(const Batch& batch) const {
  return batch.inputs.sizes() == at::IntArrayRef(shape_) && batch.inputs.is_contiguous() &&
         !batch.inputs.requires_grad() && batch.targets.sizes() == at::IntArrayRef(shape_.front()) &&
         batch.targets.is_contiguous();
}

}  // namespace dtorch
