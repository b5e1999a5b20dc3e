// The data-parallel model of the tutorial: model = DDP(model), then model(data).
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/parallel/ddp.h"
#include "dtorch/distributed.h"

namespace dtorch {

/**
 * DistributedDataParallel with the module's own type, so that a forward pass is one call:
 *
 *     auto model = dtorch::DDP(Net());        // over the default group
 *     auto loss = criterion(model(data), target);
 *     loss.backward();                        // gradients are averages over the group now
 *
 * `M` is a subclass of torch::nn::Module with a forward(). model->... reaches the module. Not thread-safe;
 * each call is made by all ranks.
 */
template <class M>
class DDP {
 public:
  /** A null group is the default one. Blocks until all ranks have come. Throws as DistributedDataParallel. */
  explicit DDP(std::shared_ptr<M> module, ProcessGroupPtr group = nullptr, DdpOptions options = {})
      : module_(module), parallel_(std::move(module), group ? std::move(group) : default_group(), options) {}
  explicit DDP(const torch::nn::ModuleHolder<M>& module, ProcessGroupPtr group = nullptr,
               DdpOptions options = {})
      : DDP(module.ptr(), std::move(group), options) {}

  /** The module's forward pass. With find_unused_parameters it must return a tensor, or a tuple or range of
   * tensors. */
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    parallel_.prepare_forward();
    auto output = module_->forward(std::forward<Arguments>(arguments)...);
    if (parallel_.options().find_unused_parameters) {
      std::vector<at::Tensor> tensors;
      collect(output, tensors);
      parallel_.prepare_backward(tensors);
    }
    return output;
  }

  /** `auto local = model.no_sync();`: while it lives, gradients are accumulated and not averaged. */
  [[nodiscard]] DistributedDataParallel::NoSync no_sync() {
    return DistributedDataParallel::NoSync(parallel_);
  }
  /** As DistributedDataParallel::join. */
  void join() { parallel_.join(); }
  void zero_grad() { parallel_.zero_grad(); }
  std::vector<at::Tensor> parameters() const { return module_->parameters(); }
  M* operator->() const { return module_.get(); }
  const std::shared_ptr<M>& module() const { return module_; }

 private:
  template <class Output>
  static void collect(const Output& output, std::vector<at::Tensor>& tensors) {
    if constexpr (std::is_convertible_v<const Output&, at::Tensor>) {
      tensors.push_back(output);
    } else if constexpr (requires { std::tuple_size<Output>::value; }) {
      std::apply([&](const auto&... part) { (collect(part, tensors), ...); }, output);
    } else {
      for (const auto& part : output) collect(part, tensors);
    }
  }

  std::shared_ptr<M> module_;
  DistributedDataParallel parallel_;
};

}  // namespace dtorch
