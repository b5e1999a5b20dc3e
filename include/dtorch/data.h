// Data for data-parallel training: datasets, DistributedSampler, DataLoader.
//
//   const std::shared_ptr<dtorch::ImageDataset> dataset = dtorch::load_dataset({.type = "mnist", .root = "data"}, dtorch::Split::train);
//   auto sampler = dtorch::distributed_sampler(dataset->size());
//   dtorch::DataLoader loader(dataset, {.batch_size = 64});
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     sampler.set_epoch(epoch);
//     loader.start(sampler.indices());
//     while (const auto batch = loader.next()) ...  // batch->inputs, batch->targets
//   }
#pragma once
#include <cstdint>

#include "core/data/batch.h"
#include "core/data/dataset.h"
#include "core/data/loader.h"
#include "core/data/sampler.h"
#include "dtorch/distributed.h"

namespace dtorch {

/** The sampler of this rank of a group (null: the default one) over so many items. Throws Error(usage) without a group. */
inline DistributedSampler distributed_sampler(std::int64_t size, DistributedSamplerOptions options = {},
                                              const ProcessGroupPtr& group = nullptr) {
  return {size, get_world_size(group), get_rank(group), options};
}

}  // namespace dtorch
