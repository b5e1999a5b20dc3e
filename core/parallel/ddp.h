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

enum class CommHook { none, fp16, bf16 };

struct DdpOptions {
  std::int64_t bucket_cap = 25 << 20;          ///< bytes
  std::int64_t first_bucket_cap = 1 << 20;     ///< bytes
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
  CommHook comm_hook = CommHook::none;
};

class Reducer;

/**
 * Keeps a module's replicas equal: broadcasts parameters and buffers from rank 0 when made (after checking that names,
 * shapes and dtypes agree), and averages gradients over the group while backward() runs. The module is used as it is:
 * wrap it, then call prepare_forward() before each forward pass (operator() of the typed wrapper in include/dtorch does).
 * When backward() returns, gradients are averaged on every rank. Gradients are views of buckets: zero them with
 * zero_grad() of this class or Optimizer::zero_grad. Not thread-safe.
 */
class DistributedDataParallel {
 public:
  DistributedDataParallel(std::shared_ptr<torch::nn::Module> module, ProcessGroupPtr group, DdpOptions options = {});
  ~DistributedDataParallel();

  /** To be called before forward: broadcasts buffers where there are any, rearms the reducer. `outputs` are needed only with
      find_unused_parameters (see prepare_backward). */
  void prepare_forward();
  /** With find_unused_parameters: after forward, before backward; finds what the outputs do not depend on. */
  void prepare_backward(const std::vector<at::Tensor>& outputs);

  /** While one lives, gradients accumulate locally and are not averaged (torch's no_sync()). */
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

  /** Uneven inputs (torch's join()): call when this rank has no more batches; shadows the others' collectives until all are done. */
  void join();

  /** Sets gradients to zero or frees them. */
  void zero_grad();
  const std::shared_ptr<torch::nn::Module>& module() const;

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace dtorch
