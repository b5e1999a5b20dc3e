#include "core/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <fmt/format.h>

#include <numeric>

#include "core/base/error.h"

namespace dtorch {
namespace {

std::vector<std::int64_t> shuffled(std::int64_t size, std::uint64_t seed) {
  const auto order = at::randperm(size, at::detail::createCPUGenerator(seed), at::kLong);
  const auto* first = order.const_data_ptr<std::int64_t>();
  return {first, first + size};
}

std::vector<std::int64_t> in_order(std::int64_t size) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

DistributedSampler::DistributedSampler(std::int64_t size, int world_size, int rank,
                                       DistributedSamplerOptions options)
    : total_(size), world_size_(world_size), rank_(rank), options_(options) {
  if (size < 0)
    throw Error(ErrorKind::usage, fmt::format("a sampler over {} items; expected 0 or more", size));
  if (world_size < 1)
    throw Error(ErrorKind::usage, fmt::format("world size {}; expected 1 or more", world_size));
  if (rank < 0 || rank >= world_size) {
    throw Error(ErrorKind::usage,
                fmt::format("rank {} of a sampler; expected 0 to {}", rank, world_size - 1));
  }
  // Without dropping: rounded up. Dropping: ceil((size - world) / world) is the same as rounding down.
  per_rank_ = options_.drop_last ? size / world_size : size / world_size + (size % world_size != 0 ? 1 : 0);
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  const auto order =
      options_.shuffle
          ? shuffled(total_, static_cast<std::uint64_t>(options_.seed) + static_cast<std::uint64_t>(epoch_))
          : in_order(total_);
  std::vector<std::int64_t> mine(static_cast<std::size_t>(per_rank_));
  // Past the end the order repeats from its head: that is the padding. When dropping, no position lies past
  // the end.
  for (std::int64_t i = 0; i < per_rank_; ++i) {
    mine[static_cast<std::size_t>(i)] = order[static_cast<std::size_t>((rank_ + i * world_size_) % total_)];
  }
  return mine;
}

}  // namespace dtorch
