#include "core/engine/preflight.h"

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/version.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "backends/registry/registry.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/data/loader.h"
#include "core/data/sampler.h"
#include "core/engine/memory_need.h"
#include "core/train/model.h"
#include "core/train/optimizer.h"
#include "core/train/trainer.h"

namespace dtorch::engine {
namespace {

nlohmann::json dataset_plan(const JobSpec& spec, const DatasetInfo& info) {
  return {{"type", info.type},        {"requested", spec.dataset.type}, {"origin", info.origin},
          {"train", info.train_size}, {"test", info.test_size},         {"item_shape", info.item_shape},
          {"classes", info.classes}};
}

nlohmann::json model_plan(const ModelSpec& spec) {
  nlohmann::json layers = nlohmann::json::array();
  std::int64_t parameters = 0;
  for (const auto& layer : describe_model(spec)) {
    layers.push_back(
        {{"name", layer.name}, {"description", layer.description}, {"parameters", layer.parameters}});
    parameters += layer.parameters;
  }
  return {{"type", spec.type},
          {"activation", spec.activation},
          {"parameters", parameters},
          {"layers", std::move(layers)}};
}

std::int64_t steps_per_epoch(const JobSpec& spec, const DatasetInfo& info) {
  const DistributedSampler sampler(info.train_size, spec.world_size, 0, {false, 0, spec.sampler.drop_last});
  return (sampler.size() + spec.loader.batch_size - 1) / spec.loader.batch_size;
}

/** A job whose ranks would all have nothing to do. */
std::vector<SpecProblem> step_problems(const JobSpec& spec, const DatasetInfo& info) {
  if (steps_per_epoch(spec, info) > 0) return {};
  return {{"world_size",
           {},
           fmt::format("no step to train: {} images over {} ranks leave each without one", info.train_size,
                       spec.world_size),
           "lower world_size, or set sampler.drop_last to false"}};
}

/** So many compute threads that they would only wait for each other. */
std::vector<SpecProblem> thread_problems(const JobSpec& spec) {
  constexpr int kMostPerCore = 8;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores == 0 || spec.nodes.threads <= kMostPerCore * cores) return {};
  return {{"nodes.threads",
           {},
           fmt::format("{} compute threads a rank are over {} for each of this machine's {} cores",
                       spec.nodes.threads, kMostPerCore, cores),
           "leave it out: 0 shares the cores between the ranks"}};
}

}  // namespace

void check_fits(const JobSpec& spec, const DatasetInfo& info, const SpecPlaces& places, int local_ranks) {
  auto problems = model_misfits(spec.model, info);
  for (const auto& more : {memory_problems(spec, info, local_ranks, memory_limit()),
                           step_problems(spec, info), thread_problems(spec)})
    problems.insert(problems.end(), more.begin(), more.end());
  places.raise(problems);
}

std::string resolve_device(const std::string& device) {
  if (device == "auto" || device == "cpu") return "cpu";
  throw Error(ErrorKind::spec,
              fmt::format("device: '{}' is not available: this build trains on the CPU", device),
              "set device to auto or cpu");
}

std::vector<std::string> versions() {
  std::vector<std::string> lines{"libtorch " TORCH_VERSION};
  for (const auto* factory : backend_table()) {
    const auto availability = factory->probe();
    lines.push_back(
        fmt::format("backend {}: {}", factory->name(), availability ? "available" : availability.reason));
  }
  return lines;
}

nlohmann::json preflight(const JobSpec& spec, const SpecPlaces& places, int local_ranks) {
  const auto device = resolve_device(spec.device);
  const auto backend = plan_backend(spec.backend, spec.world_size, local_ranks);
  build_loss(spec.loss);
  build_optimizer(spec.optimizer, {torch::zeros({1})});
  auto model = model_plan(spec.model);
  const auto info = prepare_dataset(dataset_source(spec.dataset));
  const auto steps = steps_per_epoch(spec, info);
  check_fits(spec, info, places, local_ranks);
  return {
      {"job", spec.name},
      {"world_size", spec.world_size},
      {"backend", backend.name},
      {"backend_reason", backend.reason},
      {"init_method", spec.init_method},
      {"device", device},
      {"seed", spec.seed},
      {"epochs", spec.epochs},
      {"steps_per_epoch", steps},
      {"steps", steps * spec.epochs},
      {"batch", {{"per_rank", spec.loader.batch_size}, {"global", spec.loader.batch_size * spec.world_size}}},
      {"dataset", dataset_plan(spec, info)},
      {"model", std::move(model)},
      {"loss", spec.loss.type},
      {"optimizer",
       {{"type", spec.optimizer.type},
        {"lr", spec.optimizer.lr},
        {"momentum", spec.optimizer.momentum},
        {"dampening", spec.optimizer.dampening},
        {"weight_decay", spec.optimizer.weight_decay},
        {"nesterov", spec.optimizer.nesterov}}},
      {"timeouts_ms",
       {{"rendezvous", spec.timeouts.rendezvous.count()},
        {"init", spec.timeouts.init.count()},
        {"collective", spec.timeouts.collective.count()},
        {"shutdown", spec.timeouts.shutdown.count()}}},
      {"versions", versions()}};
}

}  // namespace dtorch::engine
