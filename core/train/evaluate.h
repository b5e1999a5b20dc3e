// Evaluation by all ranks together: every item counted once, whatever the world size.
#pragma once
#include <cstdint>

#include "core/comm/process_group.h"
#include "core/data/dataset.h"
#include "core/train/model.h"
#include "core/train/optimizer.h"

namespace dtorch {

struct Evaluation {
  double loss = 0;      ///< mean over all items
  double accuracy = 0;  ///< 0 to 1, exact
  std::int64_t samples = 0;
};

/** The half-open range of items that a rank evaluates: contiguous, disjoint, at most one longer than
 * another's. */
struct Shard {
  std::int64_t begin = 0, end = 0;
};
Shard evaluation_shard(std::int64_t items, int world_size, int rank);

/**
 * Collective: each rank computes its shard in batches of that many, counts are summed as integers and losses
 * as doubles in rank order. Equal on all ranks. Without gradients; the module is in eval mode meanwhile.
 */
Evaluation evaluate(const Model& model, const ImageDataset& dataset, std::int64_t batch_size,
                    ProcessGroup& group);

/** Everyone's value, in rank order. Collective. */
std::vector<double> gather_doubles(ProcessGroup& group, double mine);

}  // namespace dtorch
