// torch.distributed for C++: one default process group, and collectives as free functions with Python's
// names.
//
//   dtorch::init_process_group("gloo", "tcp://localhost:23456", rank, 4);
//   dtorch::all_reduce(tensor);
//   dtorch::destroy_process_group();
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/process_group.h"

namespace dtorch {

struct InitProcessGroupOptions {
  std::string backend = "auto";        ///< "gloo", ... or "auto": the best one that is available
  std::string init_method = "env://";  ///< tcp://host:port, file:///path, shared_filesystem:///dir, env://
  std::optional<int> rank = {};        ///< not given: from the init_method or the environment
  std::optional<int> world_size = {};
  std::chrono::milliseconds timeout{1'800'000};  ///< for joining and for every collective (PyTorch's default)
  std::string interface = {};                    ///< network interface or address to use; empty: chosen
};

/**
 * Makes the default group. Blocks until all ranks have come or `timeout`. Throws Error: usage (there is one
 * already), and whatever rendezvous() and ProcessGroup throw. To be called from one thread, before the other
 * functions here.
 */
void init_process_group(const InitProcessGroupOptions& options);
/** The same, in the order of the tutorial. */
void init_process_group(const std::string& backend, const std::string& init_method, int rank, int world_size,
                        std::chrono::milliseconds timeout = std::chrono::milliseconds(1'800'000));
/** Closes the default group, or only this one: later calls on it are refused, whoever still holds it. Ranks need not call
 * it at the same time: what this rank has given the others, they get. Throws nothing. */
void destroy_process_group(const ProcessGroupPtr& group = nullptr);
bool is_initialized();
/** The default group. Throws Error(usage) before init_process_group. */
ProcessGroupPtr default_group();

// In all that follows a null group is the default one, and ranks named in arguments are ranks of the group.

int get_rank(const ProcessGroupPtr& group = nullptr);
int get_world_size(const ProcessGroupPtr& group = nullptr);
std::string get_backend(const ProcessGroupPtr& group = nullptr);
/** Called by all ranks of the default group; null on ranks outside the new one. */
ProcessGroupPtr new_group(const std::vector<int>& ranks,
                          std::optional<std::chrono::milliseconds> timeout = {});

// Collectives block and return null, or with async_op return Work to wait() for. Errors as ProcessGroup's.

WorkPtr all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::sum, const ProcessGroupPtr& group = nullptr,
                   bool async_op = false);
WorkPtr all_reduce_coalesced(std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::sum,
                             const ProcessGroupPtr& group = nullptr, bool async_op = false);
WorkPtr reduce(at::Tensor& tensor, int dst, ReduceOp op = ReduceOp::sum,
               const ProcessGroupPtr& group = nullptr, bool async_op = false);
WorkPtr broadcast(at::Tensor& tensor, int src, const ProcessGroupPtr& group = nullptr, bool async_op = false);
WorkPtr all_gather(std::vector<at::Tensor>& tensor_list, const at::Tensor& tensor,
                   const ProcessGroupPtr& group = nullptr, bool async_op = false);
WorkPtr all_gather_into_tensor(at::Tensor& output, const at::Tensor& input,
                               const ProcessGroupPtr& group = nullptr, bool async_op = false);
/** gather_list is filled on dst and must be empty elsewhere. */
WorkPtr gather(const at::Tensor& tensor, std::vector<at::Tensor>& gather_list, int dst = 0,
               const ProcessGroupPtr& group = nullptr, bool async_op = false);
/** scatter_list is read on src and must be empty elsewhere. */
WorkPtr scatter(at::Tensor& tensor, const std::vector<at::Tensor>& scatter_list, int src = 0,
                const ProcessGroupPtr& group = nullptr, bool async_op = false);
WorkPtr reduce_scatter(at::Tensor& output, const std::vector<at::Tensor>& input_list,
                       ReduceOp op = ReduceOp::sum, const ProcessGroupPtr& group = nullptr,
                       bool async_op = false);
WorkPtr reduce_scatter_tensor(at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::sum,
                              const ProcessGroupPtr& group = nullptr, bool async_op = false);
WorkPtr all_to_all(std::vector<at::Tensor>& output_list, const std::vector<at::Tensor>& input_list,
                   const ProcessGroupPtr& group = nullptr, bool async_op = false);
WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input,
                          const std::vector<std::int64_t>& output_splits = {},
                          const std::vector<std::int64_t>& input_splits = {},
                          const ProcessGroupPtr& group = nullptr, bool async_op = false);
WorkPtr barrier(const ProcessGroupPtr& group = nullptr, bool async_op = false);
void monitored_barrier(const ProcessGroupPtr& group = nullptr,
                       std::optional<std::chrono::milliseconds> timeout = {});
void send(const at::Tensor& tensor, int dst, const ProcessGroupPtr& group = nullptr, int tag = 0);
void recv(at::Tensor& tensor, int src, const ProcessGroupPtr& group = nullptr, int tag = 0);
WorkPtr isend(const at::Tensor& tensor, int dst, const ProcessGroupPtr& group = nullptr, int tag = 0);
WorkPtr irecv(at::Tensor& tensor, int src, const ProcessGroupPtr& group = nullptr, int tag = 0);

}  // namespace dtorch
