#include "core/comm/checks.h"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

namespace dtorch {
namespace {

[[noreturn]] void refuse(const CheckContext& context, const std::string& text, std::string help = {}) {
  throw Error(ErrorKind::usage, fmt::format("{}: {}", context.operation, text), std::move(help));
}

bool is_supported(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
    case at::kChar:
    case at::kInt:
    case at::kLong:
    case at::kByte:
    case at::kBool: return true;
    default: return false;
  }
}

std::string text_of(at::IntArrayRef sizes) {
  return fmt::format("[{}]", fmt::join(sizes.begin(), sizes.end(), ", "));
}

}  // namespace

void check_tensor(const CheckContext& context, const at::Tensor& tensor, std::string_view role) {
  if (!tensor.defined()) refuse(context, fmt::format("the {} is not a tensor", role));
  if (tensor.layout() != at::kStrided) refuse(context, fmt::format("the {} is not a dense tensor", role));
  if (!is_supported(tensor.scalar_type())) {
    refuse(context,
           fmt::format("the {} has the unsupported type {}", role, c10::toString(tensor.scalar_type())),
           "supported: float16, bfloat16, float32, float64, int8, int32, int64, uint8, bool");
  }
  const auto device = c10::DeviceTypeName(tensor.device().type(), true);
  if (device != context.device) {
    refuse(context,
           fmt::format("the {} is on {}, the backend moves tensors on {}", role, device, context.device));
  }
}

void check_output(const CheckContext& context, const at::Tensor& tensor, std::string_view role) {
  check_tensor(context, tensor, role);
  if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) return;
  refuse(context,
         fmt::format("elements of the {} share memory (shape {}, strides {}), so that they cannot be written",
                     role, text_of(tensor.sizes()), text_of(tensor.strides())),
         "an expanded tensor wants clone()");
}

void check_reduce(const CheckContext& context, const at::Tensor& tensor, ReduceOp op) {
  const bool integral = c10::isIntegralType(tensor.scalar_type(), true);
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  if (op == ReduceOp::avg && integral) {
    refuse(context,
           fmt::format("no average of {}: integers do not divide", c10::toString(tensor.scalar_type())),
           "sum, then divide as you need it");
  }
  if (bitwise && !integral) {
    refuse(context, fmt::format("no {} of {}: it is for integers and bool", to_string(op),
                                c10::toString(tensor.scalar_type())));
  }
}

void check_rank(const CheckContext& context, int rank, std::string_view what) {
  if (rank < 0 || rank >= context.size) {
    refuse(context,
           fmt::format("{} {} is not in the group, which has ranks 0 to {}", what, rank, context.size - 1));
  }
}

void check_same_dtype(const CheckContext& context, const at::Tensor& output, const at::Tensor& input) {
  if (output.scalar_type() != input.scalar_type()) {
    refuse(context, fmt::format("the output is {} but the input {}", c10::toString(output.scalar_type()),
                                c10::toString(input.scalar_type())));
  }
}

void check_list(const CheckContext& context, const std::vector<at::Tensor>& tensors, const at::Tensor& like,
                std::string_view role, bool any_size) {
  if (tensors.size() != static_cast<std::size_t>(context.size)) {
    refuse(context, fmt::format("{} {} for a group of {} ranks", tensors.size(), role, context.size));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_tensor(context, tensors[i], fmt::format("element {} of the {}", i, role));
    check_same_dtype(context, tensors[i], like);
    if (!any_size && tensors[i].sizes() != like.sizes()) {
      refuse(context, fmt::format("element {} of the {} has shape {}, expected {}", i, role,
                                  text_of(tensors[i].sizes()), text_of(like.sizes())));
    }
  }
}

void check_outputs(const CheckContext& context, const std::vector<at::Tensor>& tensors,
                   const at::Tensor& like, bool any_size) {
  check_list(context, tensors, like, "outputs", any_size);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    check_output(context, tensors[i], fmt::format("element {} of the outputs", i));
}

void check_list_absent(const CheckContext& context, const std::vector<at::Tensor>& tensors,
                       std::string_view role) {
  if (!tensors.empty())
    refuse(context, fmt::format("only the root gives {}, rank {} is not it", role, context.rank));
}

void check_parts(const CheckContext& context, const at::Tensor& whole, const at::Tensor& part) {
  check_same_dtype(context, whole, part);
  if (whole.numel() != part.numel() * context.size) {
    refuse(context, fmt::format("a tensor of {} elements cannot hold {} × {}", whole.numel(), context.size,
                                part.numel()));
  }
}

void check_own_part(const CheckContext& context, std::span<const std::int64_t> output_counts,
                    std::span<const std::int64_t> input_counts) {
  const auto own = static_cast<std::size_t>(context.rank);
  if (output_counts[own] == input_counts[own]) return;
  refuse(context, fmt::format("rank {} gives itself {} elements and takes {}", context.rank,
                              input_counts[own], output_counts[own]));
}

std::vector<std::int64_t> check_splits(const CheckContext& context, const at::Tensor& tensor,
                                       const std::vector<std::int64_t>& splits, std::string_view role) {
  if (tensor.dim() == 0) refuse(context, fmt::format("the {} has no dimension to split", role));
  const std::int64_t rows = tensor.size(0);
  const auto sizes = tensor.sizes().slice(1);
  const std::int64_t row = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  if (splits.empty()) {
    if (rows % context.size != 0) {
      refuse(context, fmt::format("the {}'s {} rows do not divide by {} ranks", role, rows, context.size),
             "give the splits of both tensors");
    }
    return std::vector<std::int64_t>(static_cast<std::size_t>(context.size), rows / context.size * row);
  }
  const bool negative = std::any_of(splits.begin(), splits.end(), [](auto split) { return split < 0; });
  const auto sum = negative ? -1 : std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  if (splits.size() != static_cast<std::size_t>(context.size) || sum != rows) {
    refuse(context, fmt::format("the {}'s splits [{}] do not make up {} rows over {} ranks", role,
                                fmt::join(splits, ", "), rows, context.size));
  }
  std::vector<std::int64_t> counts(splits);
  for (auto& count : counts) count *= row;
  return counts;
}

}  // namespace dtorch
