#include "core/train/evaluate.h"

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <numeric>

namespace dtorch {

Shard evaluation_shard(std::int64_t items, int world_size, int rank) {
  return {items * rank / world_size, items * (rank + 1) / world_size};
}

std::vector<double> gather_doubles(ProcessGroup& group, double mine) {
  const at::Tensor input = torch::full({1}, mine, torch::kDouble);
  at::Tensor output = torch::empty({group.size()}, torch::kDouble);
  group.all_gather_into_tensor(output, input)->wait(Deadline::after(group.timeout()));
  const auto* values = output.const_data_ptr<double>();
  return {values, values + group.size()};
}

Evaluation evaluate(const Model& model, const ImageDataset& dataset, std::int64_t batch_size,
                    ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  const bool was_training = model.module->is_training();
  model.module->eval();
  const auto shard = evaluation_shard(dataset.size(), group.size(), group.rank());
  double loss = 0;
  std::int64_t correct = 0;
  for (auto begin = shard.begin; begin < shard.end; begin += batch_size) {
    const auto end = std::min(begin + batch_size, shard.end);
    const auto targets = dataset.labels().slice(0, begin, end);
    const auto scores = model.forward(dataset.images().slice(0, begin, end).to(torch::kFloat).div_(255));
    loss +=
        at::cross_entropy_loss(scores, targets, {}, at::Reduction::None).sum(torch::kDouble).item<double>();
    correct += scores.argmax(1).eq(targets).sum().item<std::int64_t>();
  }
  model.module->train(was_training);

  at::Tensor count = torch::full({1}, correct, torch::kLong);
  group.all_reduce(count)->wait(Deadline::after(group.timeout()));
  const auto losses = gather_doubles(group, loss);
  const auto samples = dataset.size();
  const double items = static_cast<double>(std::max<std::int64_t>(samples, 1));
  return {std::accumulate(losses.begin(), losses.end(), 0.0) / items,
          static_cast<double>(count.item<std::int64_t>()) / items, samples};
}

}  // namespace dtorch
