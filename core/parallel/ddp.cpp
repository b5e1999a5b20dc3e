#include "core/parallel/ddp.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/parallel/flat.h"
#include "core/parallel/model_state.h"
#include "core/parallel/reducer.h"

namespace dtorch {
namespace {

// What a rank says about the pass it begins, with uneven_inputs. A rank that has joined says 0.
enum Announcement : std::int64_t { kActive = 1, kBuffers = 2, kGradients = 4, kUsedMap = 8 };

void check_options(const DdpOptions& options) {
  if (options.bucket_cap > 0 && options.first_bucket_cap > 0) return;
  throw Error(ErrorKind::usage,
              fmt::format("a bucket of {} bytes holds no gradient",
                          std::min(options.bucket_cap, options.first_bucket_cap)),
              "bucket_cap and first_bucket_cap must be positive.");
}

std::vector<std::string> describe(const DdpOptions& options) {
  return {fmt::format("option bucket_cap {}", options.bucket_cap),
          fmt::format("option first_bucket_cap {}", options.first_bucket_cap),
          fmt::format("option find_unused_parameters {}", options.find_unused_parameters),
          fmt::format("option static_graph {}", options.static_graph),
          fmt::format("option broadcast_buffers {}", options.broadcast_buffers),
          fmt::format("option uneven_inputs {}", options.uneven_inputs),
          fmt::format("option divide_by_initial_world_size {}", options.divide_by_initial_world_size),
          fmt::format("option comm_hook {}", to_string(options.comm_hook)),
          fmt::format("option shard_gradients {}", options.shard_gradients)};
}

/** Everyone's announcements, summed up. */
struct Passes {
  int active = 0;
  int last_active = 0;      // highest rank
  std::int64_t wishes = 0;  // of any
};

}  // namespace

struct DistributedDataParallel::Impl {
  std::shared_ptr<torch::nn::Module> module;
  ProcessGroupPtr group;
  DdpOptions options;
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  std::unique_ptr<Reducer> reducer;
  bool synchronise = true;
  int last_active = 0;  ///< of the last pass that any rank made: all ranks know it, those too that made it
  bool buffers_are_due =
      true;  // as torch's require_forward_param_sync: false after a pass without synchronisation

  void agree() {
    auto lines = describe(options);
    const auto state = dtorch::describe(parameters, buffers);
    lines.insert(lines.end(), state.begin(), state.end());
    check_agreement(*group, lines);
  }

  std::int64_t wishes() const {
    std::int64_t mine = kActive;
    if (buffers_are_due && options.broadcast_buffers && !buffers.empty()) mine |= kBuffers;
    if (synchronise && at::GradMode::is_enabled()) mine |= kGradients;
    if (reducer->wants_used_map()) mine |= kUsedMap;
    return mine;
  }

  Passes announce(std::int64_t mine) {
    if (!options.uneven_inputs) return {group->size(), 0, mine};
    auto slots = at::zeros({group->size()}, at::kLong);
    slots[group->rank()] = mine;
    if (group->size() > 1) group->all_reduce_agreed(slots)->wait(Deadline::after(group->timeout()));
    Passes passes;
    for (int rank = 0; rank < group->size(); ++rank) {
      const auto said = slots.data_ptr<std::int64_t>()[rank];
      passes.wishes |= said;
      if (said == 0) continue;
      ++passes.active;
      passes.last_active = rank;
    }
    if (passes.active > 0) last_active = passes.last_active;
    return passes;
  }

  Reducer::Pass pass(const Passes& passes) const {
    return {.synchronise = synchronise,
            .share_used_map = (passes.wishes & kUsedMap) != 0,
            .divisor = options.divide_by_initial_world_size ? group->size() : passes.active};
  }
};

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<torch::nn::Module> module,
                                                 ProcessGroupPtr group, DdpOptions options)
    : impl_(std::make_unique<Impl>()) {
  check_options(options);
  impl_->module = std::move(module);
  impl_->group = std::move(group);
  impl_->options = options;
  impl_->parameters = parameters_of(*impl_->module);
  impl_->buffers = buffers_of(*impl_->module);
  impl_->agree();
  if (std::none_of(impl_->parameters.begin(), impl_->parameters.end(),
                   [](const auto& parameter) { return parameter.tensor.requires_grad(); })) {
    throw Error(ErrorKind::usage, "nothing to train: no parameter of the model requires a gradient",
                "A model that is only evaluated needs no wrapper.");
  }
  broadcast_tensors(*impl_->group, impl_->parameters, 0);
  broadcast_tensors(*impl_->group, impl_->buffers, 0);
  impl_->reducer = std::make_unique<Reducer>(impl_->parameters, impl_->group, options);
}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::prepare_forward() {
  const auto passes = impl_->announce(impl_->wishes());
  if ((passes.wishes & kBuffers) != 0) broadcast_tensors(*impl_->group, impl_->buffers, passes.last_active);
  // A pass without gradients leaves an earlier one's backward as it is.
  if (at::GradMode::is_enabled()) impl_->reducer->prepare(impl_->pass(passes));
  impl_->buffers_are_due = (passes.wishes & kGradients) != 0;
}

void DistributedDataParallel::prepare_backward(const std::vector<at::Tensor>& outputs) {
  impl_->reducer->note_outputs(outputs);
}

void DistributedDataParallel::join() {
  auto& impl = *impl_;
  if (!impl.options.uneven_inputs) {
    throw Error(ErrorKind::usage, "join() on a model that does not expect uneven inputs",
                "Set uneven_inputs on every rank.");
  }
  for (auto passes = impl.announce(0); passes.active > 0; passes = impl.announce(0)) {
    if ((passes.wishes & kBuffers) != 0) broadcast_tensors(*impl.group, impl.buffers, passes.last_active);
    impl.buffers_are_due = (passes.wishes & kGradients) != 0;
    if (impl.buffers_are_due) impl.reducer->shadow(impl.pass(passes));
  }
  broadcast_tensors(*impl.group, impl.parameters, impl.last_active);
  broadcast_tensors(*impl.group, impl.buffers, impl.last_active);
}

std::vector<GradientBucket> DistributedDataParallel::gradient_buckets() const {
  return impl_->reducer->gradient_buckets();
}

void DistributedDataParallel::zero_grad() { impl_->module->zero_grad(); }

const std::shared_ptr<torch::nn::Module>& DistributedDataParallel::module() const { return impl_->module; }

const DdpOptions& DistributedDataParallel::options() const { return impl_->options; }

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(ddp), before_(std::exchange(ddp.impl_->synchronise, false)) {}

DistributedDataParallel::NoSync::~NoSync() { ddp_.impl_->synchronise = before_; }

}  // namespace dtorch
