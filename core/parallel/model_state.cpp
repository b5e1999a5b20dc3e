#include "core/parallel/model_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace dtorch {
namespace {

constexpr std::int64_t kBroadcastBytes = 64 << 20;  // of one coalesced message: bounds the extra memory

template <class Items>
std::vector<NamedTensor> unique_tensors(const Items& items) {
  std::vector<NamedTensor> found;
  std::unordered_set<const void*> seen;
  for (const auto& item : items) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
      found.push_back({item.key(), item.value()});
  }
  return found;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

[[noreturn]] void throw_disagreement(const std::vector<std::string>& texts) {
  const auto other =
      std::find_if(texts.begin(), texts.end(), [&](const auto& text) { return text != texts[0]; });
  const auto rank = other - texts.begin();
  const auto mine = split_lines(texts[0]);
  const auto theirs = split_lines(*other);
  const auto common = std::min(mine.size(), theirs.size());
  const auto at = static_cast<std::size_t>(
      std::mismatch(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(common), theirs.begin()).first -
      mine.begin());
  const auto line = [&](const std::vector<std::string>& lines) {
    return at < lines.size() ? lines[at] : "nothing more";
  };
  throw Error(
      ErrorKind::disagree,
      fmt::format("the ranks' models differ: rank 0 has {}, rank {} has {}", line(mine), rank, line(theirs)),
      "Every rank must build the same module, in the same order, and wrap it with the same options.");
}

void broadcast_flat(ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root) {
  std::int64_t elements = 0;
  for (const auto& tensor : tensors) elements += tensor.numel();
  auto flat = at::empty({elements}, tensors[0].options().requires_grad(false));
  const auto each_slice = [&](const auto& visit) {
    std::int64_t offset = 0;
    for (const auto& tensor : tensors) {
      visit(tensor, flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
  };
  if (group.rank() == root)
    each_slice([](const at::Tensor& tensor, const at::Tensor& slice) { slice.copy_(tensor); });
  group.broadcast(flat, root)->wait(Deadline::after(group.timeout()));
  if (group.rank() != root)
    each_slice([](const at::Tensor& tensor, const at::Tensor& slice) { tensor.copy_(slice); });
}

}  // namespace

std::vector<NamedTensor> parameters_of(const torch::nn::Module& module) {
  return unique_tensors(module.named_parameters());
}

std::vector<NamedTensor> buffers_of(const torch::nn::Module& module) {
  return unique_tensors(module.named_buffers());
}

std::vector<std::string> describe(const std::vector<NamedTensor>& parameters,
                                  const std::vector<NamedTensor>& buffers) {
  std::vector<std::string> lines;
  const auto add = [&](const char* what, const NamedTensor& item, const char* note) {
    const auto& tensor = item.tensor;
    lines.push_back(fmt::format("{} {}: {} [{}]{}", what, item.name,
                                c10::getDtypeNames(tensor.scalar_type()).first,
                                fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "), note));
  };
  for (const auto& item : parameters) add("parameter", item, item.tensor.requires_grad() ? "" : ", frozen");
  for (const auto& item : buffers) add("buffer", item, "");
  return lines;
}

void check_agreement(ProcessGroup& group, const std::vector<std::string>& lines) {
  const auto text = fmt::format("{}\n", fmt::join(lines, "\n"));
  const auto digests = group.all_gather_bytes(fmt::format("{:016x} {}", fnv1a(text), text.size()));
  if (std::all_of(digests.begin(), digests.end(), [&](const auto& other) { return other == digests[0]; }))
    return;
  throw_disagreement(group.all_gather_bytes(text));
}

void broadcast_tensors(ProcessGroup& group, const std::vector<NamedTensor>& tensors, int root) {
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  std::map<std::pair<at::ScalarType, std::string>, std::vector<at::Tensor>> pending;
  std::map<std::pair<at::ScalarType, std::string>, std::int64_t> bytes;
  for (const auto& [name, tensor] : tensors) {
    const std::pair key(tensor.scalar_type(), tensor.device().str());
    pending[key].push_back(tensor);
    if ((bytes[key] += static_cast<std::int64_t>(tensor.nbytes())) < kBroadcastBytes) continue;
    broadcast_flat(group, pending[key], root);
    pending.erase(key);
    bytes.erase(key);
  }
  for (const auto& [key, rest] : pending) broadcast_flat(group, rest, root);
}

}  // namespace dtorch
