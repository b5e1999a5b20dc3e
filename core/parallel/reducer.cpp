#include "core/parallel/reducer.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <optional>

#include "core/base/error.h"
#include "core/parallel/flat.h"
#include "core/parallel/unused.h"

namespace dtorch {

struct Reducer::Slot {
  NamedTensor parameter;
  std::shared_ptr<torch::autograd::Node> accumulator;  // the parameter itself holds it only weakly
  std::uintptr_t hook = 0;
  at::Tensor slice;
  std::size_t bucket = 0;
  bool ready = false;
  int calls = 0;           // of the hook in this pass
  int expected_calls = 1;  // static_graph: as counted in the first pass
};

struct Reducer::Bucket {
  BucketPlan plan;
  at::Tensor flat;
  std::optional<BucketReduction> reduction;
  std::size_t missing = 0;  // gradients, in this pass
};

namespace {

// Shards of whole cache lines, whatever the optimizer's vectors.
constexpr std::int64_t kShardUnit = 64;

bool is_slice(const at::Tensor& gradient, const at::Tensor& slice) {
  return gradient.is_alias_of(slice) && gradient.storage_offset() == slice.storage_offset();
}

std::vector<BucketPlan> plan(const std::vector<at::Tensor>& parameters, const DdpOptions& options) {
  std::map<std::pair<at::ScalarType, std::string>, int> kinds;
  std::vector<GradientShape> shapes;
  for (const auto& tensor : parameters) {
    const auto next = static_cast<int>(kinds.size());
    const auto kind = kinds.try_emplace({tensor.scalar_type(), tensor.device().str()}, next).first->second;
    shapes.push_back({tensor.numel(), static_cast<std::int64_t>(tensor.element_size()), kind});
  }
  return plan_buckets(shapes, std::min(options.first_bucket_cap, options.bucket_cap), options.bucket_cap);
}

void check_averageable(const NamedTensor& parameter) {
  const auto type = parameter.tensor.scalar_type();
  if (type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16) return;
  throw Error(ErrorKind::usage,
              fmt::format("the gradient of {} cannot be averaged: it is {}", parameter.name,
                          c10::getDtypeNames(type).first),
              "Parameters that are trained must be float16, bfloat16, float32 or float64.");
}

}  // namespace

Reducer::Reducer(const std::vector<NamedTensor>& parameters, ProcessGroupPtr group, const DdpOptions& options)
    : group_(std::move(group)),
      find_unused_(options.find_unused_parameters && !options.static_graph),
      static_graph_(options.static_graph),
      prescaled_(options.comm_hook == CommHook::none),
      alone_(group_->size() == 1 && prescaled_),
      sharded_(options.shard_gradients && group_->size() > 1),
      learning_(static_graph_) {
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    check_averageable(parameter);
    slots_.emplace_back().parameter = parameter;
    tensors.push_back(parameter.tensor);
  }
  for (auto& bucket_plan : plan(tensors, options)) add_bucket(std::move(bucket_plan), options.comm_hook);
  used_.assign(slots_.size(), 0);
  used_by_ = used_;
  for (std::size_t i = 0; i < slots_.size(); ++i) add_hook(i);
}

void Reducer::add_bucket(BucketPlan&& plan, CommHook hook) {
  auto& bucket = buckets_.emplace_back();
  bucket.plan = std::move(plan);
  const auto& members = bucket.plan.parameters;
  for (const auto index : members) slots_[index].bucket = buckets_.size() - 1;
  if (alone_) return;
  if (sharded_) {
    const auto unit = kShardUnit * group_->size();
    bucket.plan.elements = (bucket.plan.elements + unit - 1) / unit * unit;
  }
  const auto& first = slots_[members[0]].parameter.tensor;
  bucket.flat = make_flat(*group_, bucket.plan.elements, first.options().requires_grad(false));
  bucket.reduction.emplace(bucket.flat, hook, sharded_);
  for (std::size_t i = 0; i < members.size(); ++i) {
    auto& slot = slots_[members[i]];
    slot.slice = make_slice(bucket.flat, bucket.plan.offsets[i], slot.parameter.tensor);
  }
}

std::vector<GradientBucket> Reducer::gradient_buckets() const {
  std::vector<GradientBucket> result;
  for (const auto& bucket : buckets_) {
    auto& entry = result.emplace_back();
    entry.gradients = bucket.flat;
    entry.offsets = bucket.plan.offsets;
    for (const auto index : bucket.plan.parameters)
      entry.parameters.push_back(slots_[index].parameter.tensor);
  }
  return result;
}

Reducer::~Reducer() {
  for (const auto& slot : slots_) slot.accumulator->del_post_hook(slot.hook);
}

void Reducer::add_hook(std::size_t index) {
  using torch::autograd::variable_list;
  auto& slot = slots_[index];
  slot.accumulator = torch::autograd::impl::grad_accumulator(slot.parameter.tensor);
  slot.hook = slot.accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [this, index](const variable_list& outputs, const variable_list&) {
        on_gradient(index);
        return outputs;
      }));
}

bool Reducer::wants_used_map() const { return find_unused_ || learning_; }

void Reducer::prepare(const Pass& pass) {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (active_) throw_missing();
  pass_ = pass;
  if (find_unused_) unused_.clear();
}

void Reducer::note_outputs(const std::vector<at::Tensor>& outputs) {
  if (!find_unused_) return;
  const auto nodes = nodes_behind(outputs);
  const std::lock_guard lock(mutex_);
  unused_.clear();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!nodes.contains(slots_[i].accumulator.get())) unused_.push_back(i);
  }
}

void Reducer::on_gradient(std::size_t index) {
  const std::lock_guard lock(mutex_);
  auto& slot = slots_[index];
  // Without synchronisation too: what was used in any accumulated pass takes part in the average.
  if (slot.parameter.tensor.grad().defined()) used_[index] = 1;
  if (!pass_.synchronise) return;
  try {
    const at::NoGradGuard no_grad;
    if (!active_) begin_pass();
    call_back_after_this_task();
    ++slot.calls;
    if (learning_) return;
    if (slot.calls > slot.expected_calls) throw_too_often(slot);
    if (slot.calls < slot.expected_calls) return;
    mark_ready(index);
    // At once, so that the memory of autograd's own gradient is free for the next one.
    auto& gradient = slot.parameter.tensor.mutable_grad();
    if (!alone_ && gradient.defined()) gradient = slot.slice;
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void Reducer::begin_pass() {
  active_ = true;
  next_bucket_ = 0;
  task_with_callback_ = -1;
  for (auto& bucket : buckets_) bucket.missing = bucket.plan.parameters.size();
  for (auto& slot : slots_) {
    slot.ready = false;
    slot.calls = 0;
    if (find_unused_) slot.expected_calls = 1;
  }
  if (learning_) return;
  for (const auto index : unused_) mark_unused(index);
}

// A backward pass within a backward pass is a task of its own, and callbacks belong to tasks.
void Reducer::call_back_after_this_task() {
  const auto task = torch::autograd::get_current_graph_task_id();
  if (task == task_with_callback_) return;
  task_with_callback_ = task;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { on_backward_done(); });
}

void Reducer::mark_unused(std::size_t index) {
  auto& slot = slots_[index];
  auto& gradient = slot.parameter.tensor.mutable_grad();
  // Out of the bucket, so that it stays as it is if no other rank uses the parameter either.
  if (!alone_ && gradient.defined() && is_slice(gradient, slot.slice)) gradient = gradient.clone();
  slot.expected_calls = 0;
  mark_ready(index);
}

void Reducer::mark_ready(std::size_t index) {
  auto& slot = slots_[index];
  if (!alone_) store(slot);
  slot.ready = true;
  --buckets_[slot.bucket].missing;
  start_full_buckets();
}

void Reducer::store(Slot& slot) {
  auto& gradient = slot.parameter.tensor.mutable_grad();
  if (!gradient.defined()) {
    slot.slice.zero_();
    return;
  }
  if (gradient.layout() != at::kStrided || gradient.requires_grad()) {
    throw Error(
        ErrorKind::usage,
        fmt::format("the gradient of {} cannot be averaged: {}", slot.parameter.name,
                    gradient.requires_grad() ? "it has a graph of its own (create_graph)" : "it is sparse"),
        "Data-parallel training averages dense gradients of first order.");
  }
  // PyTorch multiplies by the reciprocal, too: the same bits.
  const auto reciprocal = at::native::wrapped_scalar_tensor(1.0 / pass_.divisor);
  if (is_slice(gradient, slot.slice)) {
    if (prescaled_) gradient.mul_(reciprocal);
    return;
  }
  if (prescaled_) {
    at::mul_out(slot.slice, gradient, reciprocal);
  } else {
    slot.slice.copy_(gradient);
  }
}

void Reducer::start_full_buckets() {
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0; ++next_bucket_) {
    auto& bucket = buckets_[next_bucket_];
    if (bucket.reduction) bucket.reduction->start(*group_, pass_.divisor);
  }
  if (next_bucket_ == buckets_.size() && pass_.share_used_map) share_used_map(used_);
}

void Reducer::share_used_map(const std::vector<std::int32_t>& used) {
  used_map_ = at::tensor(used).to(slots_[0].parameter.tensor.device());
  if (group_->size() > 1) used_work_ = group_->all_reduce_agreed(used_map_);
}

void Reducer::on_backward_done() {
  const std::lock_guard lock(mutex_);
  if (!active_) return;
  const bool within_another = torch::autograd::get_current_node() != nullptr;
  try {
    const at::NoGradGuard no_grad;
    if (within_another && (learning_ || next_bucket_ < buckets_.size())) return;
    if (learning_) finish_learning();
    if (next_bucket_ < buckets_.size()) throw_missing();
    wait_for_all();
    publish_gradients();
    learning_ = false;
    active_ = false;
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void Reducer::finish_learning() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].calls == 0) {
      unused_.push_back(i);
      mark_unused(i);
    } else {
      slots_[i].expected_calls = slots_[i].calls;
      mark_ready(i);
    }
  }
}

void Reducer::wait_for_all() {
  for (auto& bucket : buckets_) {
    if (bucket.reduction) bucket.reduction->finish(Deadline::after(group_->timeout()));
  }
  if (!pass_.share_used_map) return;
  if (used_work_) std::exchange(used_work_, nullptr)->wait(Deadline::after(group_->timeout()));
  const auto map = std::exchange(used_map_, {}).cpu();
  used_by_.assign(map.data_ptr<std::int32_t>(), map.data_ptr<std::int32_t>() + map.numel());
  if (find_unused_) used_.assign(used_.size(), 0);
}

void Reducer::publish_gradients() {
  if (alone_) return;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if ((find_unused_ || static_graph_) && used_by_[i] == 0) continue;
    slots_[i].parameter.tensor.mutable_grad() = slots_[i].slice;
  }
}

void Reducer::shadow(const Pass& pass) {
  prepare(pass);
  const std::lock_guard lock(mutex_);
  const at::NoGradGuard no_grad;
  for (auto& bucket : buckets_) {
    if (!bucket.reduction) continue;
    bucket.flat.zero_();
    bucket.reduction->start(*group_, pass.divisor);
  }
  if (pass.share_used_map) share_used_map(std::vector<std::int32_t>(slots_.size(), 0));
  wait_for_all();
}

void Reducer::throw_too_often(const Slot& slot) const {
  const char* help = "A backward pass within a backward pass (recomputed activations) needs static_graph.";
  if (find_unused_) help = "Pass all outputs of the forward pass to prepare_backward().";
  if (static_graph_) help = "With static_graph every pass must use the parameters as the first one did.";
  throw Error(
      ErrorKind::usage,
      fmt::format("parameter {} received a gradient when none was expected any more in this backward pass",
                  slot.parameter.name),
      help);
}

void Reducer::throw_missing() const {
  constexpr std::size_t kShown = 20;
  std::vector<std::string> names;
  std::size_t count = 0;
  for (const auto& slot : slots_) {
    if (!slot.ready && ++count <= kShown) names.push_back(slot.parameter.name);
  }
  if (count > kShown) names.push_back(fmt::format("and {} more", count - kShown));
  const char* help =
      "Freeze parameters that are never trained before wrapping the model; set find_unused_parameters if "
      "some passes "
      "do not use all of them; every output must take part in the loss, in one backward() a forward pass.";
  if (find_unused_)
    help = "Pass the outputs to prepare_backward(), and let every one of them take part in the loss.";
  if (static_graph_) help = "With static_graph every pass must use the parameters that the first one used.";
  throw Error(
      ErrorKind::usage,
      fmt::format("a backward pass ended before all gradients were there. Parameters that received no "
                  "gradient: {}",
                  fmt::join(names, ", ")),
      help);
}

}  // namespace dtorch
