#include "backends/gloo/backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/common/error.h>

#include <algorithm>

#include "backends/gloo/exchange.h"

namespace dtorch::gloo_backend {

GlooBackend::GlooBackend(std::shared_ptr<MeshContext> context, int rank, int world)
    : context_(std::move(context)),
      rank_(rank),
      world_(world),
      lanes_([context = context_] { context->wake_orphans(); }),
      queue_([context = context_] {
        if (context) context->wake_orphans();
      }) {}

GlooBackend::~GlooBackend() {
  abort("the process group was destroyed");
  lanes_.close();
}

WorkPtr GlooBackend::launch(Call call, std::function<void(const Call&, Progress&)> body, Counts output_counts,
                            Counts input_counts) {
  return queue_.push([this, call = std::move(call), body = std::move(body),
                      output_counts = std::move(output_counts),
                      input_counts = std::move(input_counts)](Progress& progress) {
    guarded(call, progress, [&] {
      if (!call.agreed && world_ > 1) agree_with_all(call, output_counts, input_counts, progress);
      body(call, progress);
      if (call.finish) call.finish();
    });
  });
}

void GlooBackend::guarded(const Call& call, Progress& progress, const std::function<void()>& operation) {
  std::exception_ptr error;
  try {
    operation();
    return;
  } catch (const gloo::Exception& exception) {
    error = translate(call, exception.what(), progress);
  } catch (...) {
    error = std::current_exception();
  }
  fail_all(error);
  std::rethrow_exception(error);
}

void GlooBackend::agree_with_all(const Call& call, const Counts& output_counts, const Counts& input_counts,
                                 Progress& progress) {
  const auto peers = all_peers(*context_);
  std::vector<CallSignature> mine(peers.size(), call.signature);
  std::vector<CallSignature> theirs(peers.size());
  std::vector<Part> parts(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    parts[i] = {i * sizeof(CallSignature), sizeof(CallSignature)};
    if (input_counts.empty()) continue;
    mine[i].to_peer = input_counts[static_cast<std::size_t>(peers[i])];
    mine[i].from_peer = output_counts[static_cast<std::size_t>(peers[i])];
  }
  const auto where = slot(SlotKind::agreement, call.signature.sequence);
  const Exchange plan{where, where, mine.data(), theirs.data(), peers, parts, parts};
  exchange(*context_, plan, call.deadline, progress, [&](std::size_t index) {
    if (agree(mine[index], theirs[index])) return;
    throw PeerError(
        ErrorKind::disagree, disagreement(rank_, mine[index], peers[index], theirs[index]), {peers[index]},
        "every rank must call the same collectives in the same order, with equal types and sizes");
  });
}

std::exception_ptr GlooBackend::translate(const Call& call, const std::string& what,
                                          const Progress& progress) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return aborted_;
  }
  if (what.find("Timed out waiting") != std::string::npos) {
    return std::make_exception_ptr(
        PeerError(ErrorKind::timeout, fmt::format("gloo: {} did not end in time", describe(call.signature)),
                  progress.waiting_for()));
  }
  const auto lost = context_->lost_ranks();
  const std::string who = lost.empty() ? "a peer" : fmt::format("rank {}", fmt::join(lost, ", "));
  return std::make_exception_ptr(
      PeerError(ErrorKind::lost, fmt::format("gloo: the connection to {} was lost", who), lost));
}

void GlooBackend::fail_all(const std::exception_ptr& error) {
  queue_.fail(error);
  lanes_.fail(error);
}

void GlooBackend::abort(const std::string& reason) {
  const auto error = std::make_exception_ptr(PeerError(ErrorKind::lost, reason));
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = error;
  }
  fail_all(error);
  if (context_) context_->cut();
}

std::shared_ptr<void> GlooBackend::allocate(std::size_t /*bytes*/) { return nullptr; }

std::shared_ptr<void> GlooBackend::allocate_common(std::size_t /*bytes*/) { return nullptr; }

WorkPtr GlooBackend::send(const at::Tensor& tensor, int destination, int tag, Call call) {
  return point_to_point(tensor, destination, tag, std::move(call));
}

WorkPtr GlooBackend::recv(const at::Tensor& tensor, int source, int tag, Call call) {
  return point_to_point(tensor, source, tag, std::move(call));
}

}  // namespace dtorch::gloo_backend
