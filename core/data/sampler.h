// torch.utils.data.DistributedSampler, index for index.
#pragma once
#include <cstdint>
#include <vector>

namespace dtorch {

struct DistributedSamplerOptions {
  bool shuffle = true;
  std::int64_t seed = 0;
  bool drop_last = false;
};

/**
 * The part of 0..size-1 that one rank sees in an epoch. n = ceil(size/world) (or ceil((size-world)/world)
 * when dropping and world does not divide size); the order is torch.randperm on a CPU generator seeded with
 * seed + epoch, padded by repeating cyclically from the head or cut to n·world; rank r takes every world-th
 * from r. Not thread-safe.
 */
class DistributedSampler {
 public:
  DistributedSampler(std::int64_t size, int world_size, int rank, DistributedSamplerOptions options = {});
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }
  /** Items per rank and epoch. */
  std::int64_t size() const { return per_rank_; }
  std::vector<std::int64_t> indices() const;

 private:
  std::int64_t total_;
  int world_size_;
  int rank_;
  DistributedSamplerOptions options_;
  std::int64_t per_rank_;
  std::int64_t epoch_ = 0;
};

}  // namespace dtorch
