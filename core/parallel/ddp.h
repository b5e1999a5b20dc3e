// DistributedDataParallel: torch.nn.parallel.DistributedDataParallel for any torch::nn::Module.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/process_group.h"

namespace torch::nn {
class Module;
}

namespace dtorch {

struct GradientBucket;

enum class CommHook { none, fp16, bf16 };

struct DdpOptions {
  std::int64_t bucket_cap = 25 << 20;       ///< bytes
  std::int64_t first_bucket_cap = 1 << 20;  ///< bytes, at most bucket_cap
  bool find_unused_parameters =
      false;                  ///< some passes leave parameters unused: prepare_backward() finds them
  bool static_graph = false;  ///< all passes are alike: unused parameters are learnt in the first one
  bool broadcast_buffers =
      true;                    ///< rank 0's buffers (running statistics) replace the others' before forward
  bool uneven_inputs = false;  ///< forward passes announce themselves (one small message), for join()
  bool divide_by_initial_world_size =
      true;  ///< with join(): average over all ranks, not only those that still have data
  CommHook comm_hook = CommHook::none;  ///< gradients travel in this precision
  bool shard_gradients = false;         ///< each rank gets the averages of its share of every bucket only
};

/**
 * Keeps a module's replicas equal: broadcasts parameters and buffers from rank 0 when made (after checking
 * that names, shapes, dtypes and options agree), and averages gradients over the group while backward() runs.
 * The module is used as it is: wrap it, then call prepare_forward() before each forward pass (DDP in
 * include/dtorch/ddp.h does). When backward() returns, gradients are averaged on every rank; what fails
 * meanwhile (a lost peer, a parameter without gradient) is thrown out of backward(). Gradients are slices of
 * larger tensors: set them to zero or free them with zero_grad() of this class, the module or the optimizer.
 * Parameters that do not require a gradient when the wrapper is made stay out. Calls are made on one thread,
 * in the same order on every rank. Higher-order and sparse gradients are refused.
 */
class DistributedDataParallel {
 public:
  /** Blocks. Throws Error(disagree) naming the first parameter, buffer or option that differs and both ranks'
     values; Error(usage) if nothing requires a gradient or an option is out of range. */
  DistributedDataParallel(std::shared_ptr<torch::nn::Module> module, ProcessGroupPtr group,
                          DdpOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /** Before each forward pass, with gradients or without: broadcasts buffers where there are any (not after a
     pass without synchronisation, as torch) and readies the reducer. Blocks for that. */
  void prepare_forward();
  /** With find_unused_parameters: after forward, before backward; finds what the outputs do not depend on. */
  void prepare_backward(const std::vector<at::Tensor>& outputs);

  /** While one lives, gradients of forward passes accumulate locally and are not averaged (torch's
   * no_sync()). */
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool before_;
  };

  /**
   * Uneven inputs (torch's Join): call when this rank has no more batches, on every rank. Takes part in the
   * passes of those that go on, with zeros, until all have joined; then the ranks hold the model of a rank
   * that went on longest. Gradients are meaningless afterwards. Blocks. Throws Error(usage) without
   * uneven_inputs.
   */
  void join();

  /** The flat tensors that gradients are slices of, the same on every rank; empty tensors where one rank alone keeps
   * gradients as autograd makes them. With shard_gradients shard_of() each holds averages after backward(), and
   * nothing else does. */
  std::vector<GradientBucket> gradient_buckets() const;

  /** Frees the gradients, so that the next backward pass writes them instead of adding to them. */
  void zero_grad();
  const std::shared_ptr<torch::nn::Module>& module() const;
  const DdpOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtorch
