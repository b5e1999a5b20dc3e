// What ranks tell each other outside of tensors: bytes, and who belongs to a new group.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "core/comm/bounded.h"
#include "core/comm/group_state.h"

namespace dtorch {

std::vector<std::string> ProcessGroup::all_gather_bytes(const std::string& mine) {
  at::Tensor lengths = at::empty({size()}, at::kLong);
  all_gather_into_tensor(lengths, at::full({1}, static_cast<std::int64_t>(mine.size()), at::kLong))->wait();
  const std::int64_t longest = lengths.max().item<std::int64_t>();
  const at::Tensor padded = at::zeros({longest}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), mine.data(), mine.size());
  at::Tensor all = at::empty({size(), longest}, at::kByte);
  all_gather_into_tensor(all, padded)->wait();
  std::vector<std::string> result;
  const auto* bytes = static_cast<const char*>(all.const_data_ptr());
  for (std::int64_t peer = 0; peer < size(); ++peer) {
    result.emplace_back(bytes + peer * longest, static_cast<std::size_t>(lengths[peer].item<std::int64_t>()));
  }
  return result;
}

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks,
                                                      std::optional<std::chrono::milliseconds> timeout) {
  const auto check = impl_->checking("new_group");
  for (const int member : ranks) check_rank(check, member, "rank");
  auto sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (ranks.empty() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    throw Error(ErrorKind::usage,
                fmt::format("new_group: [{}] is not a list of distinct ranks", fmt::join(ranks, ", ")));
  }
  const std::string mine = fmt::format("{}", fmt::join(ranks, ", "));
  const auto lists = all_gather_bytes(mine);
  for (std::size_t peer = 0; peer < lists.size(); ++peer) {
    if (lists[peer] == mine) continue;
    throw Error(ErrorKind::disagree,
                fmt::format("new_group: rank {} named the ranks [{}], rank {} the ranks [{}]", rank(), mine,
                            peer, lists[peer]));
  }
  ProcessGroupOptions options = impl_->options;
  {
    const std::lock_guard lock(impl_->mutex);
    options.name += fmt::format("/{}", ++impl_->group_count);
  }
  if (timeout) options.timeout = *timeout;
  const auto me = std::find(ranks.begin(), ranks.end(), rank());
  if (me == ranks.end()) return nullptr;
  const auto made = std::make_shared<std::shared_ptr<ProcessGroup>>();
  const int my_rank = static_cast<int>(me - ranks.begin());
  // On a thread of its own, so that an abort of this group ends the wait for the new one's ranks.
  run_watched(
      [made, parent = impl_, my_rank, size = static_cast<int>(ranks.size()), options] {
        *made = std::make_shared<ProcessGroup>(parent->factory, parent->parent_store, my_rank, size, options);
      },
      [this] { impl_->throw_if_poisoned(); });
  auto group = std::move(*made);
  const std::lock_guard lock(impl_->mutex);
  if (impl_->poison) throw *impl_->poison;
  std::erase_if(impl_->children, [](const auto& child) { return child.expired(); });
  impl_->children.push_back(group->impl_);
  return group;
}

}  // namespace dtorch
