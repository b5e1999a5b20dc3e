// One rank's end of a process group over Gloo.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/gloo/context.h"
#include "core/comm/backend.h"
#include "core/comm/lanes.h"
#include "core/comm/work_queue.h"

namespace dtorch::gloo_backend {

/**
 * Collectives run in order on one thread, each after a round of agreement in which every rank sends its
 * signature to every other. Point-to-point operations run beside them, in order for each peer, direction and
 * tag. Sums are made in an order that depends on sizes and ranks only.
 */
class GlooBackend : public Backend {
 public:
  /** A null context is a group of one rank. */
  GlooBackend(std::shared_ptr<MeshContext> context, int rank, int world);
  ~GlooBackend() override;

  std::string_view name() const override { return "gloo"; }
  std::string_view device() const override { return "cpu"; }
  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op, Call call) override;
  WorkPtr reduce(const at::Tensor& tensor, int root, ReduceOp op, Call call) override;
  WorkPtr broadcast(const at::Tensor& tensor, int root, Call call) override;
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, Call call) override;
  WorkPtr gather(const at::Tensor& output, const at::Tensor& input, int root, Call call) override;
  WorkPtr scatter(const at::Tensor& output, const at::Tensor& input, int root, Call call) override;
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op, Call call) override;
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input,
                     std::span<const std::int64_t> output_counts, std::span<const std::int64_t> input_counts,
                     Call call) override;
  WorkPtr send(const at::Tensor& tensor, int destination, int tag, Call call) override;
  WorkPtr recv(const at::Tensor& tensor, int source, int tag, Call call) override;
  WorkPtr barrier(Call call) override;
  void abort(const std::string& reason) override;
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  std::shared_ptr<void> allocate_common(std::size_t bytes) override;

 private:
  using Counts = std::vector<std::int64_t>;

  WorkPtr launch(Call call, std::function<void(const Call&, Progress&)> body, Counts output_counts = {},
                 Counts input_counts = {});
  WorkPtr point_to_point(const at::Tensor& tensor, int peer, int tag, Call call);
  /** Runs an operation on a worker thread; whatever goes wrong becomes an Error and fails the group. */
  void guarded(const Call& call, Progress& progress, const std::function<void()>& operation);
  void agree_with_all(const Call& call, const Counts& output_counts, const Counts& input_counts,
                      Progress& progress);
  void reduce_in_place(const at::Tensor& tensor, ReduceOp op, const Call& call, Progress& progress);
  std::exception_ptr translate(const Call& call, const std::string& what, const Progress& progress);
  void fail_all(const std::exception_ptr& error);

  const std::shared_ptr<MeshContext> context_;
  const int rank_;
  const int world_;
  std::mutex mutex_;
  std::exception_ptr aborted_;  // guarded by mutex_
  Lanes lanes_;
  WorkQueue queue_;
};

}  // namespace dtorch::gloo_backend
