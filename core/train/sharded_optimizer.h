// Each rank keeps the optimizer's state of a part of the parameters and updates that: ZeRO's first stage
// (Rajbhandari et al., 2019; torch's ZeroRedundancyOptimizer).
#pragma once
#include <memory>
#include <vector>

#include "core/comm/process_group.h"
#include "core/train/optimizer.h"

namespace dtorch {

struct GradientBucket;

/**
 * An optimizer over the buckets of a DistributedDataParallel with shard_gradients, for an optimizer that treats every
 * element by itself. Moves the parameters into flat tensors. step() is a collective: it updates this rank's shards
 * and hands them to the others, or, where ranks have memory in common, all ranks read the same parameters and there
 * is nothing to hand on. Made on all ranks alike, with equal parameters.
 */
std::unique_ptr<Optimizer> make_sharded_optimizer(const OptimizerSpec& spec,
                                                  const std::vector<GradientBucket>& buckets,
                                                  ProcessGroupPtr group);

}  // namespace dtorch
