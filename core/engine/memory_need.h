// Whether a job's ranks fit into this machine's memory, before any of them starts.
#pragma once
#include <cstdint>
#include <vector>

#include "core/data/dataset.h"
#include "core/job/places.h"
#include "core/job/spec.h"

namespace dtorch::engine {

/** Bytes that one rank needs at the least, as real numbers: sizes that no machine has must not overflow. */
struct MemoryNeed {
  double model = 0;    ///< parameters, gradients, the optimizer's state
  double batches = 0;  ///< batches ahead of need, the layers' outputs and their gradients
  double data = 0;     ///< both splits, and what a rank takes before it has read anything
  double total() const { return model + batches + data; }
};

/** What one of the job's ranks needs for training and evaluation. */
MemoryNeed memory_need(const JobSpec& spec, const DatasetInfo& dataset);

/** What to blame where LOCAL_RANKS ranks do not fit into LIMIT bytes; empty when they do, or when LIMIT is 0 (unknown). */
std::vector<SpecProblem> memory_problems(const JobSpec& spec, const DatasetInfo& dataset, int local_ranks,
                                         std::uint64_t limit);

}  // namespace dtorch::engine
