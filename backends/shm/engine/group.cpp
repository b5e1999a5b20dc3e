#include "backends/shm/engine/group.h"

#include <utility>

namespace dtorch::shm {

Group::Group(Connection connection, const Layout& layout, std::shared_ptr<std::byte> memory, int rank,
             int world)
    : connection_(std::move(connection)),
      layout_(layout),
      memory_(std::move(memory)),
      rank_(rank),
      world_(world),
      watch_(rank, std::move(connection_.lifelines),
             [this](int other) -> Control& { return control(other); }) {}

Control& Group::control(int rank) const {
  return *reinterpret_cast<Control*>(memory_.get() + layout_.control(rank));
}

Mailbox& Group::mailbox(int from, int to) const {
  return *reinterpret_cast<Mailbox*>(memory_.get() + layout_.mailbox(from, to));
}

void Group::arrive(const ByteCall& call) {
  ++call_;
  Slot& own = slot(rank_, call_);
  own.signature = call.signature;
  shm::publish(own.arrived, call_);
  if (world_ == 1) return;
  target_.store(call_, std::memory_order_relaxed);
  source_.store(kAll, std::memory_order_relaxed);
  phase_.store(Phase::arrival, std::memory_order_relaxed);
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    Slot& theirs = slot(peer, call_);
    watch_.wait(
        theirs.arrived, peer, call.deadline, [this](auto value) { return reached(value, call_); },
        [this] { return missing(); });
    const bool pairwise = call.signature.operation == Operation::all_to_all &&
                          theirs.signature.operation == Operation::all_to_all;
    if (pairwise || agree(call.signature, theirs.signature)) continue;
    throw PeerError(ErrorKind::disagree, disagreement(rank_, call.signature, peer, theirs.signature), {peer});
  }
  phase_.store(Phase::none, std::memory_order_relaxed);
}

void Group::await(Word word, std::uint32_t target, int source, Deadline deadline) {
  target_.store(target, std::memory_order_relaxed);
  source_.store(source, std::memory_order_relaxed);
  phase_.store(word == Word::wrote ? Phase::wrote : Phase::done, std::memory_order_relaxed);
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_ || (source != kAll && peer != source)) continue;
    watch_.wait(
        word_of(word, peer), peer, deadline, [target](auto value) { return reached(value, target); },
        [this] { return missing(); });
  }
  phase_.store(Phase::none, std::memory_order_relaxed);
}

shm::Word* Group::awaited(int rank) const {
  const auto source = source_.load(std::memory_order_relaxed);
  if (rank == rank_ || (source != kAll && rank != source)) return nullptr;
  switch (phase_.load(std::memory_order_relaxed)) {
    case Phase::none: return nullptr;
    case Phase::arrival: return &slot(rank, target_.load(std::memory_order_relaxed)).arrived;
    case Phase::wrote: return &control(rank).wrote;
    case Phase::done: return &control(rank).done;
  }
  return nullptr;
}

std::vector<int> Group::missing() const {
  std::vector<int> ranks;
  const auto target = target_.load(std::memory_order_relaxed);
  for (int rank = 0; rank < world_; ++rank) {
    const auto* word = awaited(rank);
    if (word != nullptr && !reached(word->value.load(std::memory_order_acquire), target))
      ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace dtorch::shm
