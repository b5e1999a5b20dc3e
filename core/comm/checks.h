// Validation of the arguments of collectives. Each throws Error(usage) that names the operation.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>
#include <vector>

#include "core/comm/backend.h"

namespace dtorch {

/** The group as far as arguments are concerned. */
struct CheckContext {
  std::string_view operation;
  int rank;
  int size;
  std::string_view device;
};

void check_tensor(const CheckContext& context, const at::Tensor& tensor, std::string_view role);
/** The same for a tensor that is written: its elements must be as many places in memory. */
void check_output(const CheckContext& context, const at::Tensor& tensor, std::string_view role);
void check_reduce(const CheckContext& context, const at::Tensor& tensor, ReduceOp op);
/** `what` is "root", "source", ... */
void check_rank(const CheckContext& context, int rank, std::string_view what);
void check_same_dtype(const CheckContext& context, const at::Tensor& output, const at::Tensor& input);
/** As many tensors as ranks, each a tensor of `like`'s dtype; of its size too unless `any_size`. */
void check_list(const CheckContext& context, const std::vector<at::Tensor>& tensors, const at::Tensor& like,
                std::string_view role, bool any_size = false);
/** The same for tensors that are written. */
void check_outputs(const CheckContext& context, const std::vector<at::Tensor>& tensors,
                   const at::Tensor& like, bool any_size = false);
/** Lists of gather and scatter belong to the root. */
void check_list_absent(const CheckContext& context, const std::vector<at::Tensor>& tensors,
                       std::string_view role);
/** whole holds size × part's elements. */
void check_parts(const CheckContext& context, const at::Tensor& whole, const at::Tensor& part);
/** What a rank gives itself in an all_to_all must be as many elements as it takes of itself. */
void check_own_part(const CheckContext& context, std::span<const std::int64_t> output_counts,
                    std::span<const std::int64_t> input_counts);
/** Element counts per rank from splits of dimension 0 (empty: even). */
std::vector<std::int64_t> check_splits(const CheckContext& context, const at::Tensor& tensor,
                                       const std::vector<std::int64_t>& splits, std::string_view role);

}  // namespace dtorch
