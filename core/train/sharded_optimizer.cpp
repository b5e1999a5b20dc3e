#include "core/train/sharded_optimizer.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/parallel/flat.h"

namespace dtorch {
namespace {

class ShardedOptimizer final : public Optimizer {
 public:
  ShardedOptimizer(const OptimizerSpec& spec, const std::vector<GradientBucket>& buckets,
                   ProcessGroupPtr group)
      : group_(std::move(group)) {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> shards;
    for (const auto& bucket : buckets) {
      const auto flat = take_in(bucket);
      shards.push_back(shard_of(flat, *group_).detach());
      shards.back().mutable_grad() = shard_of(bucket.gradients, *group_);
    }
    inner_ = build_optimizer(spec, shards);
  }

  void step() override {
    if (common_) wait(group_->barrier());  // somebody's backward pass may still read the parameters
    inner_->step();
    if (common_) wait(group_->barrier());
    const at::NoGradGuard no_grad;
    std::vector<WorkPtr> gathers;
    for (auto& flat : scattered_)
      gathers.push_back(group_->all_gather_into_tensor(flat, shard_of(flat, *group_)));
    for (const auto& gather : gathers) wait(gather);
  }

 private:
  void wait(const WorkPtr& work) const { work->wait(Deadline::after(group_->timeout())); }

  at::Tensor take_in(const GradientBucket& bucket) {
    const auto elements = bucket.gradients.numel();
    auto flat = make_common_flat(*group_, elements, bucket.gradients.options());
    const bool common = flat.defined();
    if (!common) flat = scattered_.emplace_back(make_flat(*group_, elements, bucket.gradients.options()));
    std::vector<at::Tensor> slices;
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      slices.push_back(make_slice(flat, bucket.offsets[i], bucket.parameters[i]));
      if (!common || group_->rank() == 0) slices.back().copy_(bucket.parameters[i]);
    }
    if (common) {
      common_ = true;
      wait(group_->barrier());
    }
    for (std::size_t i = 0; i < slices.size(); ++i) bucket.parameters[i].set_data(slices[i]);
    return flat;
  }

  ProcessGroupPtr group_;
  bool common_ = false;                // some parameters lie in memory that all ranks see
  std::vector<at::Tensor> scattered_;  // the flat parameters that do not
  std::unique_ptr<Optimizer> inner_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sharded_optimizer(const OptimizerSpec& spec,
                                                  const std::vector<GradientBucket>& buckets,
                                                  ProcessGroupPtr group) {
  return std::make_unique<ShardedOptimizer>(spec, buckets, std::move(group));
}

}  // namespace dtorch
