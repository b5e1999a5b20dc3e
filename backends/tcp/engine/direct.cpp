#include "backends/tcp/engine/direct.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace dtorch::tcp {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(50);
// How long a rank's last words may take from its other connection's end.
constexpr auto kLastWords = std::chrono::milliseconds(300);

bool same(const CallSignature& mine, const CallSignature& theirs) {
  return mine.count == theirs.count && mine.dtype == theirs.dtype;
}

PeerError mismatch(int rank, const CallSignature& mine, int peer, const CallSignature& theirs) {
  return PeerError(ErrorKind::disagree, disagreement(rank, mine, peer, theirs), {peer},
                   "the tensors of a send and its receive must have equal types and sizes");
}

}  // namespace

PeerError departure(int peer, const std::optional<Farewell>& words) {
  if (!words)
    return {ErrorKind::lost, fmt::format("tcp: rank {} is gone: its connection ended", peer), {peer}};
  if (words->done) return {ErrorKind::lost, fmt::format("tcp: rank {} has left the group", peer), {peer}};
  return {words->kind, words->text, words->ranks, {}, true};
}

Direct::Direct(Mesh& mesh, Fate& fate)
    : rank_(mesh.rank),
      world_(mesh.world),
      token_(mesh.token),
      fate_(fate),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_.valid()) throw Error(ErrorKind::os_resource, errno_text("eventfd", errno));
  for (int rank = 0; rank < world_; ++rank) {
    auto& one = peers_.emplace_back();
    if (rank == rank_) continue;
    one = std::make_unique<Peer>();
    one->stream = std::make_unique<Stream>(std::move(mesh.direct[static_cast<std::size_t>(rank)]),
                                           mesh.rules(rank, Channel::direct));
  }
}

Direct::~Direct() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
  if (reader_.joinable()) reader_.join();
  const Deadline limit = Deadline::after(fate_.failed() ? std::chrono::seconds(0) : kLinger);
  for (const auto& one_peer : peers_) {
    if (one_peer) one_peer->stream->linger(limit);
  }
}

Frame Direct::frame(FrameKind kind, int tag, const CallSignature& signature, std::size_t length) const {
  return {
      .kind = kind, .token = token_, .length = length, .tag = tag, .source = rank_, .signature = signature};
}

void Direct::write(int rank, const Frame& frame, const void* payload, Deadline deadline) {
  Peer& to = peer(rank);
  const std::lock_guard lock(to.writing);
  const std::size_t total = sizeof frame + frame.length;
  try {
    for (std::size_t sent = 0; sent < total;) {
      fate_.check();
      const auto now = to.stream->write(frame, payload, sent, kMaxPart);
      sent += now;
      if (now > 0) continue;
      if (deadline.expired())
        throw PeerError(ErrorKind::timeout,
                        fmt::format("tcp: rank {} does not take what is sent to it", rank), {rank});
      pollfd wait{to.stream->fd(), POLLOUT, 0};
      ::poll(&wait, 1, std::min(deadline.poll_ms(), static_cast<int>(kSlice.count())));
    }
  } catch (const StreamEnd&) {
    fate_.check();
    throw departure(rank, last_words(rank));
  }
}

/** Throws if the peer is gone, or another one is that did not leave in peace: then the group has failed. */
void Direct::check_peers(int rank) {
  if (peer(rank).gone) throw departure(rank, peer(rank).words);
  for (int other = 0; other < world_; ++other) {
    if (other == rank_ || !peer(other).gone) continue;
    const auto& words = peer(other).words;
    if (!words || !words->done) throw departure(other, words);
  }
}

template <typename Done>
void Direct::wait(std::unique_lock<std::mutex>& lock, int rank, const ByteCall& call, const Done& done) {
  while (!done()) {
    fate_.check();
    check_peers(rank);
    if (call.deadline.expired()) {
      throw PeerError(ErrorKind::timeout,
                      fmt::format("tcp: {} timed out: rank {} did not come", describe(call.signature), rank),
                      {rank});
    }
    changed_.wait_until(lock, std::min(call.deadline.at(), Clock::now() + kSlice));
  }
}

void Direct::send(const void* data, std::size_t bytes, int destination, int tag, const ByteCall& call) {
  start_reading();
  const Key key{destination, tag};
  std::unique_lock lock(mutex_);
  auto& mine = outgoing_[key] = {};
  lock.unlock();
  write(destination, frame(FrameKind::announce, tag, call.signature, 0), nullptr, call.deadline);
  lock.lock();
  wait(lock, destination, call, [&] { return mine.answer.has_value(); });
  const CallSignature theirs = *mine.answer;
  outgoing_.erase(key);
  lock.unlock();
  if (!same(call.signature, theirs)) throw mismatch(rank_, call.signature, destination, theirs);
  const auto* from = static_cast<const std::byte*>(data);
  for (std::size_t sent = 0; sent < bytes; sent += kMaxPart) {
    const auto length = std::min(kMaxPart, bytes - sent);
    write(destination, frame(FrameKind::part, tag, call.signature, length), from + sent, call.deadline);
  }
}

void Direct::recv(void* data, std::size_t bytes, int source, int tag, const ByteCall& call) {
  start_reading();
  const Key key{source, tag};
  std::unique_lock lock(mutex_);
  wait(lock, source, call, [&] { return announced_.contains(key); });
  const CallSignature theirs = announced_[key];
  announced_.erase(key);
  const bool fits = same(call.signature, theirs);
  auto& mine = incoming_[key] = {static_cast<std::byte*>(data), bytes, 0, fits};
  // The reader must not touch the memory of a call that has ended.
  const std::unique_ptr<void, std::function<void(void*)>> forget(&mine, [&](void*) {
    if (!lock.owns_lock()) lock.lock();
    incoming_.erase(key);
  });
  lock.unlock();
  write(source, frame(FrameKind::ready, tag, call.signature, 0), nullptr, call.deadline);
  if (!fits) throw mismatch(rank_, call.signature, source, theirs);
  lock.lock();
  wait(lock, source, call, [&] { return mine.done == mine.bytes; });
}

void Direct::say(const Farewell& farewell) {
  const auto payload = pack(farewell);
  const Frame last = frame(FrameKind::farewell, 0, {}, payload.size());
  for (const auto& one : peers_) {
    if (!one) continue;
    // Whoever is in the middle of a frame to that peer keeps it: the end of the connection must do.
    const std::unique_lock writing(one->writing, std::try_to_lock);
    try {
      if (writing.owns_lock()) one->stream->write(last, payload.data(), 0, payload.size());
    } catch (const StreamEnd&) {  // it has left before
    }
    one->stream->shut();
  }
}

std::optional<Farewell> Direct::last_words(int rank) {
  start_reading();
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kLastWords, [&] { return peer(rank).gone; });
  return peer(rank).words;
}

}  // namespace dtorch::tcp
