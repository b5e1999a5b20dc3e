#include "core/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "core/base/host.h"
#include "core/data/batch.h"
#include "core/data/loader.h"
#include "core/data/sampler.h"
#include "core/parallel/ddp.h"
#include "core/parallel/flat.h"
#include "core/train/evaluate.h"
#include "core/train/model.h"
#include "core/train/optimizer.h"
#include "core/train/sharded_optimizer.h"
#include "core/train/step_meter.h"
#include "core/train/stop.h"

namespace dtorch {
namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/** As torch.set_num_threads($OMP_NUM_THREADS): covers libtorch's own pools, whatever library reads the
 * variable. */
void use_requested_threads() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  const int threads = value != nullptr ? std::atoi(value) : 0;
  if (threads > 0) at::set_num_threads(threads);
}

/** As in the tutorial every rank has the same seed: weights and later random numbers are Python's. */
Model seeded_model(const JobSpec& spec) {
  use_requested_threads();
  at::manual_seed(static_cast<std::uint64_t>(spec.seed));
  return build_model(spec.model);
}

DdpOptions ddp_options(const DdpSpec& spec) {
  DdpOptions options;
  options.bucket_cap = spec.bucket_cap;
  options.find_unused_parameters = spec.find_unused_parameters;
  options.static_graph = spec.static_graph;
  if (spec.comm_hook == "fp16") options.comm_hook = CommHook::fp16;
  if (spec.comm_hook == "bf16") options.comm_hook = CommHook::bf16;
  options.shard_gradients = spec.shard_optimizer;
  return options;
}

std::unique_ptr<Optimizer> optimizer_for(const JobSpec& spec, const Model& model,
                                         const DistributedDataParallel& ddp, const ProcessGroupPtr& group) {
  if (spec.ddp.shard_optimizer && group->size() > 1)
    return make_sharded_optimizer(spec.optimizer, ddp.gradient_buckets(), group);
  return build_optimizer(spec.optimizer, model.module->parameters());
}

/** Python's DataLoader draws its base seed each time it is iterated; later random numbers depend on that. */
void draw_loader_seed() { at::empty({}, at::kLong).random_(); }

class Trainer {
 public:
  Trainer(const JobSpec& spec, const TrainingData& data, const ProcessGroupPtr& group, MetricsSink& sink,
          const TrainerControl& control)
      : spec_(spec),
        data_(data),
        group_(group),
        sink_(sink),
        control_(control),
        model_(seeded_model(spec)),
        ddp_(model_.module, group, ddp_options(spec.ddp)),
        loss_(build_loss(spec.loss)),
        optimizer_(optimizer_for(spec, model_, ddp_, group)),
        sampler_(data.train->size(), group->size(), group->rank(),
                 {spec.sampler.shuffle, spec.seed, spec.sampler.drop_last}),
        loader_(data.train, {spec.loader.batch_size, spec.loader.workers, false}),
        steps_per_epoch_(loader_.batches(sampler_.size())),
        stop_(control.store, group->rank(), group->size(), control.stop_requested, spec.timeouts.shutdown) {
    record_.rank = group->rank();
    record_.host = host_name();
    record_.device = "cpu";
    record_.epochs = spec.epochs;
    record_.steps_per_epoch = steps_per_epoch_;
  }

  ResultRecord run();

 private:
  void check_same_data();
  void train_epoch(int epoch);
  double train_step(const Batch& batch);
  void check_loss(double loss) const;
  void report_step(Clock::time_point now);
  void report_epoch(int epoch, double loss_sum, std::int64_t samples, double seconds);
  void evaluate_now(int epoch);
  [[noreturn]] void stop();
  bool evaluates_after(int epoch) const;
  WaitingTimes waiting() const { return {group_->time_waiting(), loader_.time_waiting()}; }
  bool leads() const { return group_->rank() == 0; }

  const JobSpec& spec_;
  const TrainingData& data_;
  ProcessGroupPtr group_;
  MetricsSink& sink_;
  const TrainerControl& control_;
  Model model_;
  DistributedDataParallel ddp_;
  Loss loss_;
  std::unique_ptr<Optimizer> optimizer_;
  DistributedSampler sampler_;
  DataLoader loader_;
  std::int64_t steps_per_epoch_;
  StopAgreement stop_;

  StepRecord record_;  // its counters are the trainer's own
  StepMeter meter_;
  double training_seconds_ = 0;
  double trained_samples_ = 0;  // all ranks
  double evaluation_seconds_ = 0;
  double epoch_loss_ = 0;
  std::optional<Evaluation> evaluation_;
};

/** Sizes that differ between machines would make ranks disagree on the number of steps and hang. */
void Trainer::check_same_data() {
  const auto mine = fmt::format("{} with {} training and {} test images", data_.info.type,
                                data_.train->size(), data_.test->size());
  const auto all = group_->all_gather_bytes(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error(
        ErrorKind::disagree,
        fmt::format("ranks hold different data: rank 0 has {}, rank {} has {}", all[0], rank, all[rank]),
        "give every machine the same files (dataset.root), or remove dataset.fallback");
  }
  if (steps_per_epoch_ == 0) {
    throw Error(
        ErrorKind::spec,
        fmt::format("no step to train: {} over {} ranks leaves each without an image", mine, group_->size()),
        "lower world_size, or set sampler.drop_last to false");
  }
}

ResultRecord Trainer::run() {
  check_same_data();
  for (int epoch = 0; epoch < spec_.epochs; ++epoch) {
    train_epoch(epoch);
    if (evaluates_after(epoch)) evaluate_now(epoch);
  }
  ResultRecord result;
  result.test_accuracy = evaluation_ ? evaluation_->accuracy : 0;
  result.loss = epoch_loss_;
  result.samples_per_s = trained_samples_ / std::max(training_seconds_, 1e-9);
  result.seconds = training_seconds_ + evaluation_seconds_;
  result.world_size = group_->size();
  result.backend = group_->backend_name();
  result.dataset = data_.info.type;
  result.steps = record_.step;
  result.epochs = spec_.epochs;
  if (leads()) sink_.result(result);
  sink_.phase("done");
  return result;
}

bool Trainer::evaluates_after(int epoch) const {
  return epoch + 1 == spec_.epochs || (spec_.eval.every > 0 && (epoch + 1) % spec_.eval.every == 0);
}

void Trainer::train_epoch(int epoch) {
  sink_.phase("training");
  model_.module->train();
  sampler_.set_epoch(epoch);
  record_.epoch = epoch;
  record_.epoch_step = 0;
  const auto start = Clock::now();
  draw_loader_seed();
  loader_.start(sampler_.indices());
  meter_.restart(start, waiting());
  double loss_sum = 0;
  std::int64_t samples = 0;
  while (record_.epoch_step < steps_per_epoch_) {
    if (!stop_.begin_step(record_.step)) stop();
    const auto batch = loader_.next();
    if (!batch) throw Error(ErrorKind::training, "the loader gave fewer batches than it announced");
    const auto size = batch->targets.size(0);
    record_.loss = train_step(*batch);
    ++record_.step;
    ++record_.epoch_step;
    if (control_.step != nullptr) control_.step->store(record_.step);
    loss_sum += record_.loss * static_cast<double>(size);
    samples += size;
    const auto now = Clock::now();
    if (meter_.count(now, size)) report_step(now);
  }
  if (!meter_.empty()) report_step(Clock::now());
  report_epoch(epoch, loss_sum, samples, seconds_since(start));
}

double Trainer::train_step(const Batch& batch) {
  ddp_.zero_grad();
  ddp_.prepare_forward();
  const auto scores = model_.forward(batch.inputs);
  if (spec_.ddp.find_unused_parameters) ddp_.prepare_backward({scores});
  const auto loss = loss_(scores, batch.targets);
  const double value = loss.item<double>();
  sink_.loss(value);
  check_loss(value);
  loss.backward();
  optimizer_->step();
  return value;
}

void Trainer::check_loss(double loss) const {
  if (std::isfinite(loss)) return;
  throw Error(ErrorKind::training,
              fmt::format("rank {} on {}: the loss is {} at step {} (epoch {}, step {} of {})", record_.rank,
                          record_.host, loss, record_.step + 1, record_.epoch + 1, record_.epoch_step + 1,
                          steps_per_epoch_),
              fmt::format("training diverged: try a lower optimizer.lr (now {})", spec_.optimizer.lr));
}

void Trainer::report_step(Clock::time_point now) {
  meter_.fill(record_, now, waiting());
  sink_.step(record_);
}

void Trainer::report_epoch(int epoch, double loss_sum, std::int64_t samples, double seconds) {
  const auto sum = [this](double mine) {
    const auto all = gather_doubles(*group_, mine);
    return std::accumulate(all.begin(), all.end(), 0.0);
  };
  const double all_samples = sum(static_cast<double>(samples));
  epoch_loss_ = sum(loss_sum) / all_samples;
  const auto all_seconds = gather_doubles(*group_, seconds);
  const double slowest = *std::max_element(all_seconds.begin(), all_seconds.end());
  training_seconds_ += slowest;
  trained_samples_ += all_samples;
  if (leads()) sink_.epoch({epoch, epoch_loss_, all_samples / std::max(slowest, 1e-9), slowest});
}

void Trainer::evaluate_now(int epoch) {
  sink_.phase("evaluating");
  const auto start = Clock::now();
  evaluation_ = evaluate(model_, *data_.test, spec_.eval.batch_size, *group_);
  const auto all_seconds = gather_doubles(*group_, seconds_since(start));
  const double slowest = *std::max_element(all_seconds.begin(), all_seconds.end());
  evaluation_seconds_ += slowest;
  if (leads()) sink_.eval({epoch, evaluation_->loss, evaluation_->accuracy, evaluation_->samples, slowest});
}

void Trainer::stop() {
  // Nobody leaves before all have read the agreement: the store may live in one of us.
  group_->barrier()->wait(Deadline::after(spec_.timeouts.shutdown));
  throw Error(ErrorKind::interrupted, fmt::format("stopped on request after step {} of {}", record_.step,
                                                  steps_per_epoch_ * spec_.epochs));
}

}  // namespace

ResultRecord train(const JobSpec& spec, const TrainingData& data, const ProcessGroupPtr& group,
                   MetricsSink& sink, const TrainerControl& control) {
  return Trainer(spec, data, group, sink, control).run();
}

}  // namespace dtorch
