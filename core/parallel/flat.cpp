#include "core/parallel/flat.h"

#include <ATen/ATen.h>

namespace dtorch {
namespace {

std::size_t size_in_bytes(std::int64_t elements, const at::TensorOptions& options) {
  return static_cast<std::size_t>(elements) * options.dtype().itemsize();
}

at::Tensor over(std::shared_ptr<void> memory, std::int64_t elements, const at::TensorOptions& options) {
  auto* data = memory.get();
  return at::from_blob(
      data, {elements}, [memory = std::move(memory)](void*) {}, options);
}

bool is_movable(std::int64_t elements, const at::TensorOptions& options) {
  return options.device().is_cpu() && elements > 0;
}

}  // namespace

at::Tensor make_flat(ProcessGroup& group, std::int64_t elements, const at::TensorOptions& options) {
  if (is_movable(elements, options)) {
    if (auto memory = group.allocate(size_in_bytes(elements, options)))
      return over(std::move(memory), elements, options);
  }
  return at::zeros({elements}, options);
}

at::Tensor make_common_flat(ProcessGroup& group, std::int64_t elements, const at::TensorOptions& options) {
  if (!is_movable(elements, options)) return {};
  auto memory = group.allocate_common(size_in_bytes(elements, options));
  return memory ? over(std::move(memory), elements, options) : at::Tensor();
}

// Not made by view(): Optimizer::zero_grad detaches gradients in place, which autograd forbids on views.
at::Tensor make_slice(const at::Tensor& flat, std::int64_t offset, const at::Tensor& like) {
  auto slice = at::empty({0}, flat.options());
  if (like.is_non_overlapping_and_dense())
    return slice.set_(flat.storage(), offset, like.sizes(), like.strides());
  return slice.set_(flat.storage(), offset, like.sizes());
}

at::Tensor shard_of(const at::Tensor& flat, const ProcessGroup& group) {
  const auto length = flat.numel() / group.size();
  return flat.narrow(0, group.rank() * length, length);
}

}  // namespace dtorch
