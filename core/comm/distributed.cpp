#include "dtorch/distributed.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/comm/rendezvous.h"

namespace dtorch {
namespace {

/** The one default group, as torch.distributed has it. */
struct Default {
  std::mutex mutex;                        // never held while something waits
  bool making = false;                     // init_process_group is at work
  std::unique_ptr<Rendezvous> rendezvous;  // outlives the group: its store is the group's
  ProcessGroupPtr group;
};

Default& the_default() {
  static Default instance;
  return instance;
}

/** Only one default group is made at a time; others may ask meanwhile whether there is one. */
class Making {
 public:
  Making() {
    auto& state = the_default();
    const std::lock_guard lock(state.mutex);
    if (state.group || state.making) {
      throw Error(ErrorKind::usage,
                  state.group ? "init_process_group: there is a default process group already"
                              : "init_process_group: another thread is making the default process group",
                  "call destroy_process_group first");
    }
    state.making = true;
  }
  ~Making() {
    auto& state = the_default();
    const std::lock_guard lock(state.mutex);
    state.making = false;
  }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
};

ProcessGroupPtr chosen(const ProcessGroupPtr& group) { return group ? group : default_group(); }

WorkPtr finish(WorkPtr work, bool async_op) {
  if (async_op) return work;
  work->wait();
  return nullptr;
}

}  // namespace

void init_process_group(const InitProcessGroupOptions& options) {
  const Making making;
  const auto deadline = Deadline::after(options.timeout);
  const auto& factory = find_backend(options.backend);
  RendezvousRequest request{.init_method = options.init_method,
                            .rank = options.rank,
                            .world_size = options.world_size,
                            .run_id = {},
                            .digest = {},
                            .digest_text = {},
                            .deadline = deadline};
  auto rendezvous = dtorch::rendezvous(request);
  ProcessGroupOptions group_options;
  group_options.timeout = options.timeout;
  // What joining took is no longer there for the connections.
  group_options.init_timeout = deadline.remaining_ms();
  group_options.interface = options.interface;
  auto group = std::make_shared<ProcessGroup>(factory, rendezvous->store(), rendezvous->rank(),
                                              rendezvous->world_size(), group_options);
  auto& state = the_default();
  const std::lock_guard lock(state.mutex);
  state.group = std::move(group);
  state.rendezvous = std::move(rendezvous);
}

void init_process_group(const std::string& backend, const std::string& init_method, int rank, int world_size,
                        std::chrono::milliseconds timeout) {
  init_process_group({.backend = backend,
                      .init_method = init_method,
                      .rank = rank,
                      .world_size = world_size,
                      .timeout = timeout});
}

void destroy_process_group(const ProcessGroupPtr& group) {
  auto& state = the_default();
  std::unique_ptr<Rendezvous> rendezvous;  // closed after the group, and both without the lock
  ProcessGroupPtr closed = group;
  {
    const std::lock_guard lock(state.mutex);
    if (!group || group == state.group) {
      rendezvous = std::move(state.rendezvous);
      closed = std::exchange(state.group, nullptr);
    }
  }
  if (closed) closed->close("it was destroyed by destroy_process_group");
}

bool is_initialized() {
  auto& state = the_default();
  const std::lock_guard lock(state.mutex);
  return state.group != nullptr;
}

ProcessGroupPtr default_group() {
  auto& state = the_default();
  const std::lock_guard lock(state.mutex);
  if (state.group) return state.group;
  throw Error(ErrorKind::usage, "the default process group has not been initialized",
              "call init_process_group first");
}

int get_rank(const ProcessGroupPtr& group) { return chosen(group)->rank(); }
int get_world_size(const ProcessGroupPtr& group) { return chosen(group)->size(); }
std::string get_backend(const ProcessGroupPtr& group) { return std::string(chosen(group)->backend_name()); }

ProcessGroupPtr new_group(const std::vector<int>& ranks, std::optional<std::chrono::milliseconds> timeout) {
  return default_group()->new_group(ranks, timeout);
}

WorkPtr all_reduce(at::Tensor& tensor, ReduceOp op, const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->all_reduce(tensor, op), async_op);
}

WorkPtr all_reduce_coalesced(std::vector<at::Tensor>& tensors, ReduceOp op, const ProcessGroupPtr& group,
                             bool async_op) {
  return finish(chosen(group)->all_reduce_coalesced(tensors, op), async_op);
}

WorkPtr reduce(at::Tensor& tensor, int dst, ReduceOp op, const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->reduce(tensor, dst, op), async_op);
}

WorkPtr broadcast(at::Tensor& tensor, int src, const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->broadcast(tensor, src), async_op);
}

WorkPtr all_gather(std::vector<at::Tensor>& tensor_list, const at::Tensor& tensor,
                   const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->all_gather(tensor_list, tensor), async_op);
}

WorkPtr all_gather_into_tensor(at::Tensor& output, const at::Tensor& input, const ProcessGroupPtr& group,
                               bool async_op) {
  return finish(chosen(group)->all_gather_into_tensor(output, input), async_op);
}

WorkPtr gather(const at::Tensor& tensor, std::vector<at::Tensor>& gather_list, int dst,
               const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->gather(gather_list, tensor, dst), async_op);
}

WorkPtr scatter(at::Tensor& tensor, const std::vector<at::Tensor>& scatter_list, int src,
                const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->scatter(tensor, scatter_list, src), async_op);
}

WorkPtr reduce_scatter(at::Tensor& output, const std::vector<at::Tensor>& input_list, ReduceOp op,
                       const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->reduce_scatter(output, input_list, op), async_op);
}

WorkPtr reduce_scatter_tensor(at::Tensor& output, const at::Tensor& input, ReduceOp op,
                              const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->reduce_scatter_tensor(output, input, op), async_op);
}

WorkPtr all_to_all(std::vector<at::Tensor>& output_list, const std::vector<at::Tensor>& input_list,
                   const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->all_to_all(output_list, input_list), async_op);
}

WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input,
                          const std::vector<std::int64_t>& output_splits,
                          const std::vector<std::int64_t>& input_splits, const ProcessGroupPtr& group,
                          bool async_op) {
  return finish(chosen(group)->all_to_all_single(output, input, output_splits, input_splits), async_op);
}

WorkPtr barrier(const ProcessGroupPtr& group, bool async_op) {
  return finish(chosen(group)->barrier(), async_op);
}

void monitored_barrier(const ProcessGroupPtr& group, std::optional<std::chrono::milliseconds> timeout) {
  chosen(group)->monitored_barrier(timeout);
}

void send(const at::Tensor& tensor, int dst, const ProcessGroupPtr& group, int tag) {
  chosen(group)->send(tensor, dst, tag)->wait();
}

void recv(at::Tensor& tensor, int src, const ProcessGroupPtr& group, int tag) {
  chosen(group)->recv(tensor, src, tag)->wait();
}

WorkPtr isend(const at::Tensor& tensor, int dst, const ProcessGroupPtr& group, int tag) {
  return chosen(group)->send(tensor, dst, tag);
}

WorkPtr irecv(at::Tensor& tensor, int src, const ProcessGroupPtr& group, int tag) {
  return chosen(group)->recv(tensor, src, tag);
}

}  // namespace dtorch
