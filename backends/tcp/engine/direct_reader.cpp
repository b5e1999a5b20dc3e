// The reading side of Direct.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "backends/tcp/engine/direct.h"

namespace dtorch::tcp {
namespace {

// Tags that were announced and whose recv has not come.
constexpr std::size_t kMostAnnounced = 1 << 16;
// A peer that sends without end must not keep the others from being heard.
constexpr int kFramesInARow = 64;

}  // namespace

void Direct::start_reading() {
  const std::lock_guard lock(mutex_);
  if (!reader_.joinable() && !stopping_) reader_ = std::thread([this] { read_all(); });
}

void Direct::read_all() {
  std::vector<pollfd> fds;
  std::vector<int> ranks;
  while (true) {
    fds.assign(1, {stop_.get(), POLLIN, 0});
    ranks.assign(1, rank_);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (int rank = 0; rank < world_; ++rank) {
        if (rank == rank_ || peer(rank).gone) continue;
        fds.push_back({peer(rank).stream->fd(), POLLIN, 0});
        ranks.push_back(rank);
      }
    }
    if (::poll(fds.data(), fds.size(), -1) <= 0) continue;
    for (std::size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents != 0) read_from(ranks[i]);
    }
  }
}

// Under the lock also while data is copied into a receiver's memory, which therefore cannot end under it.
void Direct::read_from(int rank) {
  const std::lock_guard lock(mutex_);
  Peer& from = peer(rank);
  try {
    for (int i = 0; i < kFramesInARow; ++i) {
      const Frame* frame = from.stream->front();
      if (frame == nullptr || !take(rank, *from.stream, *frame)) break;
      from.stream->pop();
    }
  } catch (const StreamEnd&) {
    from.gone = true;
  } catch (const BrokenFrame& broken) {
    from.gone = true;
    from.words =
        Farewell{false, ErrorKind::lost, {rank}, fmt::format("tcp: rank {} sent {}", rank, broken.what())};
  }
  changed_.notify_all();
}

/** Whether all of the frame has been dealt with; false: more of it has to come. */
bool Direct::take(int rank, Stream& stream, const Frame& frame) {
  if (frame.kind == FrameKind::part) return take_part(rank, stream, frame);
  if (frame.kind != FrameKind::farewell) {
    take_call(rank, frame);
    return true;
  }
  Peer& from = peer(rank);
  std::array<std::byte, kMaxFarewell> some;
  while (stream.left() > 0) {
    const auto got = stream.read(some.data(), some.size());
    if (got == 0) return false;
    from.farewell.insert(from.farewell.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got));
  }
  from.words = parse_farewell(from.farewell, world_);
  from.gone = true;
  return true;
}

bool Direct::take_part(int rank, Stream& stream, const Frame& frame) {
  const auto found = incoming_.find({rank, frame.tag});
  if (found == incoming_.end() || !found->second.ready ||
      stream.left() > found->second.bytes - found->second.done) {
    throw BrokenFrame("data that nobody waits for");
  }
  Incoming& to = found->second;
  while (stream.left() > 0) {
    const auto got = stream.read(to.data + to.done, stream.left());
    if (got == 0) return false;
    to.done += got;
  }
  return true;
}

void Direct::take_call(int rank, const Frame& frame) {
  const Key key{rank, frame.tag};
  if (frame.kind == FrameKind::announce) {
    if (announced_.contains(key) || announced_.size() >= kMostAnnounced)
      throw BrokenFrame("a second send before the first had ended");
    announced_[key] = frame.signature;
    return;
  }
  const auto found = outgoing_.find(key);
  if (found == outgoing_.end() || found->second.answer) throw BrokenFrame("an answer that nobody waits for");
  found->second.answer = frame.signature;
}

}  // namespace dtorch::tcp
