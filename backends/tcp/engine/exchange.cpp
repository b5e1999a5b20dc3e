#include "backends/tcp/engine/exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/base/host.h"

namespace dtorch::tcp {
namespace {

// Per system call: half of it is a fifth slower at 1 MiB, more gains nothing.
constexpr std::size_t kMaxStep = 512 << 10;
// Sent to a peer beyond what has come from it: more only fills the kernel's buffers.
constexpr std::size_t kWindow = 2 << 20;
constexpr unsigned kCheckEvery = 64;
constexpr auto kSpin = std::chrono::microseconds(20);

}  // namespace

Exchange::Exchange(Mesh& mesh, Fate& fate, Direct& direct)
    : rank_(mesh.rank),
      world_(mesh.world),
      token_(mesh.token),
      spins_(mesh.local_ranks <= usable_cores()),
      fate_(fate),
      direct_(direct),
      departures_(::epoll_create1(EPOLL_CLOEXEC)),
      call_{{}, Deadline(Clock::time_point::max())} {
  if (!departures_.valid()) throw Error(ErrorKind::os_resource, errno_text("epoll_create1", errno));
  for (int rank = 0; rank < world_; ++rank) {
    auto& one = peers_.emplace_back();
    if (rank == rank_) continue;
    one = std::make_unique<Peer>();
    one->stream = std::make_unique<Stream>(std::move(mesh.collective[static_cast<std::size_t>(rank)]),
                                           mesh.rules(rank, Channel::collective));
    epoll_event closed{.events = EPOLLRDHUP | EPOLLET, .data = {.fd = rank}};
    if (::epoll_ctl(departures_.get(), EPOLL_CTL_ADD, one->stream->fd(), &closed) != 0)
      throw Error(ErrorKind::os_resource, errno_text("epoll_ctl", errno));
  }
}

Exchange::~Exchange() {
  const Deadline limit = Deadline::after(fate_.failed() ? std::chrono::seconds(0) : kLinger);
  for (const auto& peer : peers_) {
    if (peer) peer->stream->linger(limit);
  }
}

void Exchange::begin(const ByteCall& call) {
  call_ = call;
  number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  active_.store(true, std::memory_order_relaxed);
  for (const auto& peer : peers_) {
    if (peer) peer->ahead = false;
  }
  notice_departures();
}

void Exchange::expect_counts(std::span<const std::int64_t> to, std::span<const std::int64_t> from) {
  for (int rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    at(rank).count_to = to[static_cast<std::size_t>(rank)];
    at(rank).count_from = from[static_cast<std::size_t>(rank)];
  }
}

void Exchange::run(std::span<const Send> sends, std::span<const Recv> recvs) {
  sink_ = nullptr;
  offset_ = 0;
  limit_ = SIZE_MAX;
  post(sends, recvs);
  loop();
}

void Exchange::run_in_pieces(std::span<const Send> sends, std::span<const Recv> recvs, std::size_t piece,
                             PieceSink& sink) {
  sink_ = &sink;
  piece_ = piece;
  offset_ = 0;
  limit_ = piece;
  post(sends, recvs);
  loop();
}

CallSignature Exchange::signature_for(const Peer& peer) const {
  CallSignature signature = call_.signature;
  if (signature.operation == Operation::all_to_all) {
    signature.to_peer = peer.count_to;
    signature.from_peer = peer.count_from;
  }
  return signature;
}

bool Exchange::throttled(const Peer& peer) { return peer.receiving && peer.sent > peer.received + kWindow; }

void Exchange::post(std::span<const Send> sends, std::span<const Recv> recvs) {
  const auto number = number_.load(std::memory_order_relaxed);
  senders_.clear();
  receivers_.clear();
  asked_ = false;
  for (const Send& send : sends) {
    Peer& peer = at(send.peer);
    peer.frame = {.token = token_,
                  .number = number,
                  .length = send.bytes,
                  .source = rank_,
                  .signature = signature_for(peer)};
    peer.from = static_cast<const std::byte*>(send.data);
    peer.to_send = sizeof(Frame) + send.bytes;
    peer.sent = 0;
    peer.sending = peer.writable = true;
    senders_.push_back(send.peer);
  }
  for (const Recv& recv : recvs) {
    Peer& peer = at(recv.peer);
    peer.to = static_cast<std::byte*>(recv.data);
    peer.expected = recv.bytes;
    peer.received = 0;
    peer.started = false;
    peer.receiving = peer.readable = true;
    peer.asked.store(number, std::memory_order_relaxed);
    receivers_.push_back(recv.peer);
  }
  all_receivers_ = receivers_;
}

void Exchange::loop() {
  bool was_idle = false;
  unsigned steps = 0;
  Clock::time_point since;
  while (!senders_.empty() || !receivers_.empty()) {
    if (step()) {
      was_idle = false;
      // A peer that sends a little now and then must not keep this rank past its deadline.
      if (++steps % kCheckEvery == 0) check();
    } else {
      if (!was_idle) since = Clock::now();
      was_idle = true;
      idle(since);
    }
  }
}

/** Whether anything moved. */
bool Exchange::step() {
  bool moved = false;
  std::erase_if(senders_, [&](int rank) {
    moved |= step_send(rank);
    return !at(rank).sending;
  });
  std::erase_if(receivers_, [&](int rank) {
    moved |= step_recv(rank);
    return !at(rank).receiving;
  });
  return (sink_ != nullptr && next_piece()) || moved;
}

bool Exchange::step_send(int rank) {
  Peer& peer = at(rank);
  if (!peer.writable) return false;
  if (throttled(peer)) return false;
  std::size_t sent = 0;
  try {
    if (!peer.rest.empty()) write_rest(peer);
    if (peer.rest.empty()) sent = peer.stream->write(peer.frame, peer.from, peer.sent, kMaxStep);
  } catch (const StreamEnd&) {
    ended(rank);
  }
  peer.sent += sent;
  peer.sending = peer.sent < peer.to_send;
  peer.writable = sent > 0;
  return sent > 0;
}

bool Exchange::step_recv(int rank) {
  Peer& peer = at(rank);
  if (!peer.readable) return false;
  bool moved = false;
  try {
    if (!peer.started) {
      const Frame* frame = peer.stream->front();
      if (frame == nullptr) {
        peer.readable = false;
        return false;
      }
      if (!accept(rank, *frame)) return true;
      peer.started = moved = true;
    }
    const std::size_t upto = std::min({peer.expected, limit_, peer.received + kMaxStep});
    while (peer.received < upto) {
      const auto got = peer.stream->read(peer.to + (peer.received - offset_), upto - peer.received);
      if (got == 0) peer.readable = false;
      if (got == 0) break;
      peer.received += got;
      moved = true;
    }
  } catch (const StreamEnd&) {
    ended(rank);
  } catch (const BrokenFrame& broken) {
    throw PeerError(ErrorKind::lost, fmt::format("tcp: rank {} sent {}", rank, broken.what()), {rank});
  }
  if (peer.received == peer.expected) {
    peer.stream->pop();
    peer.receiving = false;
  }
  return moved;
}

/** Hands a piece to the sink once all peers have sent theirs. */
bool Exchange::next_piece() {
  if (all_receivers_.empty()) return false;
  const std::size_t total = at(all_receivers_.front()).expected;
  const std::size_t end = std::min(limit_, total);
  if (offset_ == end) return false;
  for (const int rank : all_receivers_) {
    if (at(rank).received < end) return false;
  }
  sink_->take(offset_, end - offset_);
  offset_ = end;
  limit_ = end + piece_;
  return true;
}

/** Whether the frame at the front is the one that is waited for; false: it was another and is gone. */
bool Exchange::accept(int rank, const Frame& frame) {
  Peer& peer = at(rank);
  const auto number = number_.load(std::memory_order_relaxed);
  if (frame.kind == FrameKind::waiting && frame.number < number) {
    peer.stream->pop();
    return false;
  }
  const CallSignature mine = signature_for(peer);
  if (!agree(mine, frame.signature)) {
    throw PeerError(
        ErrorKind::disagree, "tcp: " + disagreement(rank_, mine, rank, frame.signature), {rank},
        "every rank must call the same collectives, in the same order, with equal shapes and types");
  }
  if (frame.kind == FrameKind::waiting) {
    peer.waits = number;
    peer.heard.store(number, std::memory_order_relaxed);
    peer.stream->pop();
    return false;
  }
  if (frame.length != peer.expected) throw BrokenFrame("a frame with an unexpected length");
  peer.heard.store(number, std::memory_order_relaxed);
  return true;
}

std::vector<int> Exchange::missing() const {
  std::vector<int> ranks;
  if (!active_.load(std::memory_order_relaxed)) return ranks;
  const auto number = number_.load(std::memory_order_relaxed);
  for (int rank = 0; rank < world_; ++rank) {
    const auto& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer && peer->asked.load(std::memory_order_relaxed) == number &&
        peer->heard.load(std::memory_order_relaxed) < number) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void Exchange::shut() {
  for (const auto& peer : peers_) {
    if (peer) peer->stream->shut();
  }
}

void Exchange::check() const {
  fate_.check();
  if (call_.deadline.expired()) throw_timeout();
}

void Exchange::idle(Clock::time_point since) {
  fate_.check();
  const auto now = Clock::now();
  if (spins_ && now - since < kSpin) {
    for (const int rank : senders_) at(rank).writable = true;
    for (const int rank : receivers_) at(rank).readable = true;
    return;
  }
  if (now >= call_.deadline.at()) throw_timeout();
  wait();
}

}  // namespace dtorch::tcp
