#include "core/comm/staging.h"

#include <ATen/ATen.h>

#include "core/base/hash.h"

namespace dtorch {
namespace {

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> plain;
  plain.reserve(tensors.size());
  for (const auto& tensor : tensors) plain.push_back(tensor.detach());
  return plain;
}

/** Copies consecutive parts of `flat` to the tensors. */
std::function<void()> distribute(const at::Tensor& flat, std::vector<at::Tensor> tensors) {
  return [flat, tensors = std::move(tensors)] {
    std::int64_t offset = 0;
    for (const auto& tensor : tensors) {
      tensor.copy_(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
  };
}

}  // namespace

at::Tensor stage_input(const at::Tensor& tensor) { return tensor.detach().contiguous(); }

Staged stage_in_place(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach();
  if (plain.is_contiguous()) return {plain, {}};
  const at::Tensor staged = plain.contiguous();
  return {staged, [plain, staged] { plain.copy_(staged); }};
}

Staged stage_output(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach();
  if (plain.is_contiguous()) return {plain, {}};
  const at::Tensor staged = at::empty(plain.sizes(), plain.options());
  return {staged, [plain, staged] { plain.copy_(staged); }};
}

at::Tensor stage_inputs(const std::vector<at::Tensor>& tensors, const at::Tensor& like) {
  std::vector<at::Tensor> flat;
  for (const auto& tensor : detached(tensors)) flat.push_back(tensor.reshape({-1}));
  return flat.empty() ? at::empty({0}, like.options().requires_grad(false)) : at::cat(flat);
}

Staged stage_outputs(const std::vector<at::Tensor>& tensors, const at::Tensor& like) {
  std::int64_t total = 0;
  for (const auto& tensor : tensors) total += tensor.numel();
  const at::Tensor flat = at::empty({total}, like.detach().options());
  return {flat, distribute(flat, detached(tensors))};
}

Staged stage_coalesced(const std::vector<at::Tensor>& tensors) {
  const at::Tensor flat = stage_inputs(tensors, tensors.front());
  return {flat, distribute(flat, detached(tensors))};
}

std::uint64_t hash_of_sizes(const std::vector<at::Tensor>& tensors) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(tensors.size());
  for (const auto& tensor : tensors) sizes.push_back(tensor.numel());
  return fnv1a({reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(std::int64_t)});
}

}  // namespace dtorch
