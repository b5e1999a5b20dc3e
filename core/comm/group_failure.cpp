// How a group fails: finding the first cause, telling the other ranks, poisoning.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/log.h"
#include "core/comm/bounded.h"
#include "core/comm/group_state.h"
#include "core/comm/named_store.h"
#include "core/comm/post_mortem.h"

namespace dtorch {
namespace {

constexpr auto kPublishLimit = std::chrono::milliseconds(300);
constexpr auto kLostLookup =
    std::chrono::milliseconds(300);  // survivors of a killed rank must end within a second
constexpr auto kNextLookup = std::chrono::milliseconds(50);
constexpr auto kStallLookup = std::chrono::milliseconds(1'000);

struct Cause {
  ErrorKind kind = ErrorKind::training;
  std::string text;
  std::vector<int> ranks;
  std::string help;
  bool consequence = false;
};

std::string rank_list(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

Cause classify(const std::exception_ptr& error, const std::vector<int>& waiting_for) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerError& peer) {
    const bool consequence = peer.told() || peer.kind() == ErrorKind::lost;
    Cause cause{peer.kind(), peer.what(), peer.ranks(), peer.help(), consequence};
    if (cause.kind == ErrorKind::timeout && cause.ranks.empty()) cause.ranks = waiting_for;
    return cause;
  } catch (const Error& known) {
    return {known.kind(), known.what(), {}, known.help(), false};
  } catch (const std::exception& other) {
    return {ErrorKind::training, first_lines(other), {}, {}, false};
  }
}

/** In a stall every rank that came leaves a note as it gives up; who leaves none did not come. */
void explain_stall(Cause& cause, const RingEntry& entry, const std::vector<int>& peers,
                   const std::map<int, FailureNote>& notes) {
  const std::string mine = describe(entry.signature);
  std::vector<int> behind;
  for (const int peer : peers) {
    const auto found = notes.find(peer);
    if (found == notes.end()) {
      cause.ranks.push_back(peer);
      continue;
    }
    const auto& note = found->second;
    if (note.sequence == entry.signature.sequence && note.call == mine) continue;
    cause.text += fmt::format("; rank {} is in {} (#{})", peer, note.call, note.sequence);
    if (note.sequence == entry.signature.sequence) cause.kind = ErrorKind::disagree;
    if (note.sequence < entry.signature.sequence) behind.push_back(peer);
  }
  // Who is in an earlier collective is usually held there by a rank that is silent.
  if (cause.ranks.empty()) cause.ranks = std::move(behind);
}

void add_waiting_text(Cause& cause, const RingEntry& entry) {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - entry.started);
  const std::string who =
      cause.ranks.empty() ? std::string("not all ranks took part") : rank_list(cause.ranks) + " did not come";
  cause.text = fmt::format("{} within {} ms{}", who, waited.count(), cause.text);
}

std::vector<int> peers_of(int rank, int size) {
  std::vector<int> peers;
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) peers.push_back(peer);
  }
  return peers;
}

/** read_notes, with an end even if the store does not answer. */
std::map<int, FailureNote> bounded_notes(const StorePtr& store, const std::vector<int>& ranks,
                                         std::size_t enough, std::chrono::milliseconds limit) {
  struct Found {
    std::mutex mutex;
    std::map<int, FailureNote> notes;
  };
  const auto found = std::make_shared<Found>();
  try_bounded(
      [store, ranks, enough, limit, found] {
        auto notes = read_notes(store, ranks, Deadline::after(limit),
                                [&](const auto& some) { return some.size() >= enough; });
        const std::lock_guard lock(found->mutex);
        found->notes = std::move(notes);
      },
      limit + std::chrono::milliseconds(50));
  const std::lock_guard lock(found->mutex);
  return std::move(found->notes);
}

/**
 * Ranks whose connection broke may have given up for a reason of their own, which they then tell. If that is
 * the loss of another rank, that one's reason is better.
 */
void explain_lost(Cause& cause, const StorePtr& store, int rank, int size) {
  auto suspects = cause.ranks.empty() ? peers_of(rank, size) : cause.ranks;
  auto limit = kLostLookup;
  for (int step = 0; step < size; ++step) {
    std::erase(suspects, rank);
    const auto notes = bounded_notes(store, suspects, 1, limit);
    if (notes.empty()) break;
    const auto& first = notes.begin()->second;
    cause.kind = first.kind;
    cause.text =
        fmt::format("rank {} gave up in {} (#{}): {}", first.rank, first.call, first.sequence, first.message);
    if (first.kind != ErrorKind::lost || first.ranks.empty()) {
      cause.ranks = first.kind == ErrorKind::lost ? std::vector<int>{first.rank} : first.ranks;
      return;
    }
    cause.ranks = suspects = first.ranks;
    limit = kNextLookup;
  }
}

}  // namespace

void ProcessGroup::Impl::fail(const RingEntry& entry, const std::exception_ptr& error,
                              const std::vector<int>& waiting_for) {
  const std::lock_guard first_only(failing);
  throw_if_poisoned();
  Cause cause = classify(error, waiting_for);
  if (cause.kind == ErrorKind::timeout) {
    cause.text.clear();
    add_waiting_text(cause, entry);
  }
  const FailureNote note{
      rank, cause.kind, cause.text, cause.ranks, entry.signature.sequence, describe(entry.signature)};
  // Told before connections are cut: whoever wakes from that finds the reason.
  try_bounded([target = store, note] { publish_note(target, note); }, kPublishLimit);
  backend->abort(cause.text);
  if (cause.kind == ErrorKind::lost) {
    explain_lost(cause, store, rank, size);
  }
  if (cause.kind == ErrorKind::timeout && cause.ranks.empty()) {
    const auto peers = peers_of(rank, size);
    cause.text.clear();
    explain_stall(cause, entry, peers, bounded_notes(store, peers, peers.size(), kStallLookup));
    add_waiting_text(cause, entry);
  }
  const std::string message =
      fmt::format("{} (#{} of group '{}', {} bytes) failed on rank {}: {}", describe(entry.signature),
                  entry.signature.sequence, options.name, entry.bytes, rank, cause.text);
  log_debug(message);
  const auto missing =
      cause.kind == ErrorKind::timeout || cause.kind == ErrorKind::lost ? cause.ranks : std::vector<int>();
  CollectiveError result(cause.kind, message, entry.record(), missing, cause.help, cause.consequence);
  {
    const std::lock_guard lock(mutex);
    if (!poison) poison = result;
    result = *poison;
  }
  throw result;
}

void ProcessGroup::Impl::close(const std::string& reason) {
  {
    const std::lock_guard lock(mutex);
    if (poison) return;
    if (unfinished() == nullptr) {
      poison =
          CollectiveError(ErrorKind::usage, fmt::format("process group '{}': {}", options.name, reason), {});
      return;
    }
  }
  abort(reason);
}

void ProcessGroup::Impl::abort(const std::string& reason) {
  std::vector<std::weak_ptr<Impl>> groups;
  {
    const std::lock_guard lock(mutex);
    groups = children;
  }
  for (const auto& group : groups) {
    if (const auto child = group.lock()) child->abort(reason);
  }
  FailureNote note{rank, ErrorKind::lost, reason, {}, 0, "no collective"};
  {
    const std::lock_guard lock(mutex);
    if (poison) return;
    CollectiveRecord record;
    if (const auto* entry = unfinished()) {
      record = entry->record();
      note.sequence = record.sequence;
      note.call = record.operation;
    }
    poison = CollectiveError(ErrorKind::lost,
                             fmt::format("the process group '{}' was aborted: {}", options.name, reason),
                             record, {}, {}, true);
  }
  // A moment for the note to arrive; waiters must wake soon, whatever the store does.
  try_bounded([target = store, note] { publish_note(target, note); }, std::chrono::milliseconds(20));
  backend->abort(reason);
}

}  // namespace dtorch
