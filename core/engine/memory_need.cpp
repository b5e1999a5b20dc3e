#include "core/engine/memory_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/base/units.h"

namespace dtorch::engine {
namespace {

constexpr double kFloat = 4;  // bytes
constexpr double kLabel = 8;
constexpr double kProcess = 64 << 20;  // private memory of a rank with libtorch loaded, measured

double item_bytes(const DatasetInfo& dataset) {
  return std::accumulate(dataset.item_shape.begin(), dataset.item_shape.end(), 1.0, std::multiplies<>());
}

/** Numbers that the layers make of one item. */
double outputs(const ModelSpec& model) {
  return std::accumulate(model.layers.begin() + 1, model.layers.end(), 0.0);
}

/** Samples in a rank's batch: no more than there are. */
double batch(std::int64_t batch_size, std::int64_t samples, int world_size) {
  const std::int64_t mine = (samples + world_size - 1) / world_size;
  return static_cast<double>(std::min(batch_size, mine));
}

/** The key whose value takes most. */
std::string to_blame(const JobSpec& spec, const DatasetInfo& dataset, const MemoryNeed& need,
                     int local_ranks) {
  if (need.data >= std::max(need.model, need.batches)) return local_ranks > 1 ? "world_size" : "dataset.type";
  if (need.model >= need.batches) return "model.layers";
  const double training = batch(spec.loader.batch_size, dataset.train_size, spec.world_size);
  const double evaluation = batch(spec.eval.batch_size, dataset.test_size, spec.world_size);
  return 2 * training >= evaluation ? "loader.batch_size" : "eval.batch_size";
}

std::string bytes_text(double bytes) {
  constexpr double kMost = 9e18;
  return human_size(static_cast<std::uint64_t>(std::min(bytes, kMost)));
}

}  // namespace

MemoryNeed memory_need(const JobSpec& spec, const DatasetInfo& dataset) {
  MemoryNeed need;
  double parameters = 0;
  for (std::size_t i = 1; i < spec.model.layers.size(); ++i) {
    parameters +=
        (static_cast<double>(spec.model.layers[i - 1]) + 1) * static_cast<double>(spec.model.layers[i]);
  }
  need.model = kFloat * parameters * (spec.optimizer.momentum > 0 ? 3 : 2);
  const double input = item_bytes(dataset) * kFloat + kLabel;
  // Each layer's output is kept for the way back, where its gradient joins it.
  const double training = batch(spec.loader.batch_size, dataset.train_size, spec.world_size) *
                          (input + 2 * kFloat * outputs(spec.model));
  const double evaluation = batch(spec.eval.batch_size, dataset.test_size, spec.world_size) *
                            (input + kFloat * outputs(spec.model));
  need.batches = std::max(training, evaluation);
  need.data =
      kProcess + (item_bytes(dataset) + kLabel) * static_cast<double>(dataset.train_size + dataset.test_size);
  return need;
}

std::vector<SpecProblem> memory_problems(const JobSpec& spec, const DatasetInfo& dataset, int local_ranks,
                                         std::uint64_t limit) {
  const MemoryNeed need = memory_need(spec, dataset);
  if (limit == 0 || need.total() * local_ranks <= static_cast<double>(limit)) return {};
  const std::string key = to_blame(spec, dataset, need, local_ranks);
  std::string help = key == "dataset.type" ? "take a smaller dataset" : fmt::format("make '{}' smaller", key);
  if (local_ranks > 1) help += ", or spread the ranks over more machines";
  return {{key,
           {},
           fmt::format(
               "{} on this machine {} about {} of memory in all, it has {} (each: model {}, batches {}, "
               "data and program {})",
               local_ranks == 1 ? "the rank" : fmt::format("{} ranks", local_ranks),
               local_ranks == 1 ? "needs" : "need", bytes_text(need.total() * local_ranks), human_size(limit),
               bytes_text(need.model), bytes_text(need.batches), bytes_text(need.data)),
           help}};
}

}  // namespace dtorch::engine
