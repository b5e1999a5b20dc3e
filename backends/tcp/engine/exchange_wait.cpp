// What Exchange does while nothing moves: sleep, watch the peers that it does not wait for, find out who is to blame.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "backends/tcp/engine/exchange.h"

namespace dtorch::tcp {
namespace {

constexpr int kSliceMs = 50;
// Whoever waits longer than this tells the others in what.
constexpr int kFirstSliceMs = 20;

}  // namespace

/** The events of a peer that matter now. */
short Exchange::wanted(int rank) {
  const Peer& peer = at(rank);
  short events = 0;
  if (peer.sending && !throttled(peer)) events |= POLLOUT;
  if (peer.receiving ? peer.received < limit_ : !peer.ahead) events |= POLLIN;
  if (!peer.departed) events |= POLLRDHUP;
  return events;
}

void Exchange::wait() {
  polled_.assign(1, {fate_.bell(), POLLIN, 0});
  polled_ranks_.assign(1, rank_);
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_ || (at(rank).departed && !at(rank).receiving)) continue;
    polled_.push_back({at(rank).stream->fd(), wanted(rank), 0});
    polled_ranks_.push_back(rank);
  }
  const int slice = asked_ ? kSliceMs : kFirstSliceMs;
  const int count = ::poll(polled_.data(), polled_.size(), std::min(call_.deadline.poll_ms(), slice));
  fate_.check();
  if (count == 0 && !asked_) ask();
  if (count <= 0) return;
  for (std::size_t i = 1; i < polled_.size(); ++i) {
    const auto events = polled_[i].revents;
    if (events == 0) continue;
    Peer& peer = at(polled_ranks_[i]);
    if ((events & (POLLOUT | POLLERR | POLLHUP)) != 0) peer.writable = true;
    if ((events & ~POLLOUT) == 0) continue;
    if (peer.receiving && peer.received < limit_) {
      peer.readable = true;
      continue;
    }
    if (!peer.receiving) look_at(polled_ranks_[i]);
    if ((events & (POLLRDHUP | POLLHUP | POLLERR)) != 0) hung_up(polled_ranks_[i]);
  }
}

/** A peer of which nothing can come now has closed: that is its right once its part is done. */
void Exchange::hung_up(int rank) {
  Peer& peer = at(rank);
  if (peer.departed) return;
  const auto words = direct_.last_words(rank);
  if (!words || !words->done || peer.sending) throw departure(rank, words);
  peer.departed = true;
}

/** Of ranks that gave up before this one came: their part may lie here whole, and yet the group has failed. */
void Exchange::notice_departures() {
  std::array<epoll_event, 16> closed{};
  const int count = ::epoll_wait(departures_.get(), closed.data(), static_cast<int>(closed.size()), 0);
  for (int i = 0; i < count; ++i) hung_up(closed[static_cast<std::size_t>(i)].data.fd);
}

/** Something has come from a peer that nothing is expected of: it may be ahead, disagree, or be gone. */
void Exchange::look_at(int rank) {
  Peer& peer = at(rank);
  try {
    const Frame* frame = peer.stream->front();
    if (frame == nullptr) return;
    const auto number = number_.load(std::memory_order_relaxed);
    const CallSignature mine = signature_for(peer);
    if (frame->number <= number && !(frame->kind == FrameKind::waiting && frame->number < number) &&
        !agree(mine, frame->signature)) {
      throw PeerError(ErrorKind::disagree, "tcp: " + disagreement(rank_, mine, rank, frame->signature),
                      {rank});
    }
    if (frame->kind == FrameKind::waiting && frame->number <= number) {
      peer.waits = frame->number;
      peer.stream->pop();
    } else {
      peer.ahead = true;
    }
  } catch (const StreamEnd&) {
    hung_up(rank);
  } catch (const BrokenFrame& broken) {
    throw PeerError(ErrorKind::lost, fmt::format("tcp: rank {} sent {}", rank, broken.what()), {rank});
  }
}

/** Tells the peers what this rank waits in, where that does not disturb a frame under way: those that are waited for may
 * disagree, the others need not wonder who is late. And looks at the latter, whose frames may have come before this call. */
void Exchange::ask() {
  asked_ = true;
  for (int rank = 0; rank < world_; ++rank) {
    if (rank != rank_ && !at(rank).receiving && !at(rank).departed) look_at(rank);
  }
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_ || at(rank).departed) continue;
    Peer& peer = at(rank);
    if (!peer.rest.empty() || (peer.sending && peer.sent > 0)) continue;
    const Frame frame{.kind = FrameKind::waiting,
                      .token = token_,
                      .number = number_.load(std::memory_order_relaxed),
                      .source = rank_,
                      .signature = signature_for(peer)};
    try {
      const auto sent = peer.stream->write(frame, nullptr, 0, 0);
      const auto* bytes = reinterpret_cast<const std::byte*>(&frame);
      if (sent > 0) peer.rest.assign(bytes + sent, bytes + sizeof frame);
    } catch (const StreamEnd&) {
      if (peer.receiving) ended(rank);
      hung_up(rank);
    }
  }
}

void Exchange::write_rest(Peer& peer) {
  Frame frame{};
  std::copy(peer.rest.begin(), peer.rest.end(), reinterpret_cast<std::byte*>(&frame + 1) - peer.rest.size());
  const auto sent = peer.stream->write(frame, nullptr, sizeof frame - peer.rest.size(), 0);
  peer.rest.erase(peer.rest.begin(), peer.rest.begin() + static_cast<std::ptrdiff_t>(sent));
}

/** A connection has ended in the middle of what it was needed for. */
void Exchange::ended(int rank) {
  fate_.check();
  const auto words = direct_.last_words(rank);
  fate_.check();
  throw departure(rank, words);
}

/** Whom this rank waits for: of those the ones that have not come, else those that do not say that they wait too. */
std::vector<int> Exchange::late() const {
  if (auto silent = missing(); !silent.empty()) return silent;
  std::vector<int> behind;
  for (const int rank : receivers_) {
    const Peer& peer = *peers_[static_cast<std::size_t>(rank)];
    if (peer.received < std::min(peer.expected, limit_)) behind.push_back(rank);
  }
  if (behind.empty()) behind = senders_;
  const auto number = number_.load(std::memory_order_relaxed);
  std::vector<int> idle;
  std::copy_if(behind.begin(), behind.end(), std::back_inserter(idle),
               [&](int rank) { return peers_[static_cast<std::size_t>(rank)]->waits != number; });
  return idle.empty() ? behind : idle;
}

void Exchange::throw_timeout() const {
  const auto ranks = late();
  throw PeerError(
      ErrorKind::timeout,
      fmt::format("tcp: {} (#{}) timed out: rank {} {}", describe(call_.signature), call_.signature.sequence,
                  fmt::join(ranks, ", "), missing().empty() ? "stopped in the middle of it" : "did not come"),
      ranks);
}

}  // namespace dtorch::tcp
