#include "core/train/sgd.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "core/base/error.h"

namespace dtorch {
namespace {

// What ATen's vector loops leave over they compute with other roundings in a fused step than in SGD's single
// operations. So the fused step sees multiples of this only; it is one of every vector's length.
constexpr std::int64_t kWhole = 64;

at::Tensor flat_memory(const at::Tensor& tensor) { return tensor.detach().as_strided({tensor.numel()}, {1}); }

/** The tensors of one fused step. */
struct Lists {
  std::vector<at::Tensor> parameters, gradients, momentums;
};

/** A parameter and its state. */
class Slot {
 public:
  Slot(at::Tensor parameter, bool with_momentum) : parameter_(std::move(parameter)) {
    const auto flat = flat_memory(parameter_);
    const auto whole = flat.numel() / kWhole * kWhole;
    head_ = flat.narrow(0, 0, whole);
    rest_ = flat.narrow(0, whole, flat.numel() - whole);
    const auto padding = rest_.numel() > 0 ? kWhole : 0;
    padded_rest_ = at::zeros({padding}, flat.options());
    padded_gradient_ = at::zeros({padding}, flat.options());
    if (with_momentum) momentum_ = at::zeros({whole + padding}, flat.options());
  }

  bool has_gradient() const { return parameter_.grad().defined(); }

  /** Adds what the step works on. The first gradient becomes the momentum undampened: another call. */
  void append_to(Lists& first, Lists& later) {
    auto& lists = std::exchange(fresh_, false) ? first : later;
    const auto gradient = flat_gradient();
    if (head_.numel() > 0) append(lists, head_, gradient.narrow(0, 0, head_.numel()), 0);
    if (rest_.numel() == 0) return;
    padded_rest_.narrow(0, 0, rest_.numel()).copy_(rest_);
    padded_gradient_.narrow(0, 0, rest_.numel()).copy_(gradient.narrow(0, head_.numel(), rest_.numel()));
    append(lists, padded_rest_, padded_gradient_, head_.numel());
  }

  void take_rest_back() {
    if (rest_.numel() > 0) rest_.copy_(padded_rest_.narrow(0, 0, rest_.numel()));
  }

 private:
  void append(Lists& lists, const at::Tensor& part, at::Tensor gradient, std::int64_t start) const {
    lists.parameters.push_back(part);
    lists.gradients.push_back(std::move(gradient));
    if (momentum_.defined()) lists.momentums.push_back(momentum_.narrow(0, start, part.numel()));
  }

  at::Tensor flat_gradient() const {
    const auto& gradient = parameter_.grad();
    if (gradient.strides() == parameter_.strides()) return flat_memory(gradient);
    return flat_memory(at::empty_like(parameter_).copy_(gradient));
  }

  at::Tensor parameter_;
  at::Tensor head_;  // of its memory
  at::Tensor rest_;  // of its memory: fewer than kWhole elements
  at::Tensor padded_rest_, padded_gradient_;
  at::Tensor momentum_;  // head's, then padded_rest's
  bool fresh_ = true;    // no gradient so far
};

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerSpec& spec, const std::vector<at::Tensor>& parameters) : spec_(spec) {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : parameters) {
      if (!parameter.is_non_overlapping_and_dense()) {
        throw Error(ErrorKind::usage,
                    fmt::format("parameter {} of {} cannot be trained: its memory has gaps or repeats",
                                slots_.size() + 1, parameters.size()),
                    "Call contiguous() on it before it becomes a parameter.");
      }
      slots_.emplace_back(parameter, spec.momentum != 0);
    }
  }

  void step() override {
    const at::NoGradGuard no_grad;
    Lists first, later;
    for (auto& slot : slots_) {
      if (slot.has_gradient()) slot.append_to(first, later);
    }
    update(first, true);
    update(later, false);
    for (auto& slot : slots_) {
      if (slot.has_gradient()) slot.take_rest_back();
    }
  }

 private:
  void update(const Lists& lists, bool first) const {
    if (lists.parameters.empty()) return;
    at::_fused_sgd_(lists.parameters, lists.gradients, lists.momentums, spec_.weight_decay, spec_.momentum,
                    spec_.lr, spec_.dampening, spec_.nesterov, /*maximize=*/false, first);
  }

  OptimizerSpec spec_;
  std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerSpec& spec, const std::vector<at::Tensor>& parameters) {
  return std::make_unique<Sgd>(spec, parameters);
}

}  // namespace dtorch
