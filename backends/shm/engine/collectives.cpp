#include "backends/shm/engine/collectives.h"

#include <algorithm>
#include <cstring>

#include "core/bytes/reduce_kernels.h"

namespace dtorch::shm {
namespace {

/** What is reduced at a time before it is copied on: it stays in the first-level cache meanwhile. */
constexpr std::size_t kTile = std::size_t{8} * 1024;

/** Reduces at `from` of each rank into all of `to`. */
void reduce_tiles(std::span<std::byte* const> from, std::span<std::byte* const> to, std::size_t bytes,
                  const Reduction& what) {
  std::array<const void*, kMaxWorld> parts{};
  for (std::size_t begin = 0; begin < bytes; begin += kTile) {
    const std::size_t length = std::min(kTile, bytes - begin);
    for (std::size_t rank = 0; rank < from.size(); ++rank) parts[rank] = from[rank] + begin;
    reduce_parts(to[0] + begin, {parts.data(), from.size()}, length / size_of(what.type), what.type, what.op);
    for (std::byte* other : to.subspan(1)) std::memcpy(other + begin, to[0] + begin, length);
  }
}

/** The share of one rank of so many bytes. */
std::size_t share_of(std::size_t bytes, int world) {
  const auto ranks = static_cast<std::size_t>(world);
  return round_up((bytes + ranks - 1) / ranks, kLine);
}

}  // namespace

void move_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

StagedReduction::StagedReduction(Group& group, const Reduction& what, Deadline deadline)
    : group_(group),
      what_(what),
      deadline_(deadline),
      base_(group.step()),
      pieces_((what.bytes() + kChunk - 1) / kChunk) {}

StagedReduction::Piece StagedReduction::piece(std::size_t index) const {
  const std::size_t begin = index * kChunk;
  const std::size_t bytes = std::min(kChunk, what_.bytes() - begin);
  return {begin, bytes, share_of(bytes, group_.world())};
}

void StagedReduction::begin() {
  put(0);
  begun_ = true;
}

void StagedReduction::run() {
  // Each piece is two behind the last, so that peers seldom make one another wait.
  for (std::size_t index = begun_ ? 1 : 0; index < pieces_ + 2; ++index) {
    if (index < pieces_) put(index);
    if (index >= 1 && index - 1 < pieces_) combine(index - 1);
    if (index >= 2) take(index - 2);
  }
  group_.advance(static_cast<std::uint32_t>(pieces_));
}

void StagedReduction::put(std::size_t index) {
  const Piece at = piece(index);
  const std::uint32_t step = base_ + static_cast<std::uint32_t>(index);
  group_.await(Group::Word::done, step + 1 - kStages, Group::kAll, deadline_);
  std::byte* stage = group_.stage(group_.rank(), step);
  const std::byte* from = what_.data + at.begin;
  // All but this rank's own share, which nobody else reads.
  const std::size_t begin = std::min(at.bytes, static_cast<std::size_t>(group_.rank()) * at.share);
  const std::size_t end = std::min(at.bytes, begin + at.share);
  move_bytes(stage, from, begin);
  move_bytes(stage + end, from + end, at.bytes - end);
  group_.publish(Group::Word::wrote, step + 1);
}

void StagedReduction::combine(std::size_t index) {
  const Piece at = piece(index);
  const std::uint32_t step = base_ + static_cast<std::uint32_t>(index);
  group_.await(Group::Word::wrote, step + 1, Group::kAll, deadline_);
  const int rank = group_.rank();
  const std::size_t begin = std::min(at.bytes, static_cast<std::size_t>(rank) * at.share);
  const std::size_t bytes = std::min(at.share, at.bytes - begin);
  Addresses from;
  for (int peer = 0; peer < group_.world(); ++peer)
    from[static_cast<std::size_t>(peer)] = group_.stage(peer, step) + begin;
  std::byte* own = what_.data + at.begin + begin;
  from[static_cast<std::size_t>(rank)] = own;
  const std::array<std::byte*, 2> to{own, group_.result(rank, step)};
  const std::span all(to);
  const auto world = static_cast<std::size_t>(group_.world());
  if (what_.root == Group::kAll) {
    reduce_tiles({from.data(), world}, group_.world() == 1 ? all.first(1) : all, bytes, what_);
  } else {
    reduce_tiles({from.data(), world}, what_.root == rank ? all.first(1) : all.last(1), bytes, what_);
  }
  group_.publish(Group::Word::done, step + 1);
}

void StagedReduction::take(std::size_t index) {
  const Piece at = piece(index);
  const std::uint32_t step = base_ + static_cast<std::uint32_t>(index);
  // Also where nothing is taken: a stage may be written again once everyone has reduced.
  group_.await(Group::Word::done, step + 1, Group::kAll, deadline_);
  if (what_.root != Group::kAll && what_.root != group_.rank()) return;
  for (int peer = 0; peer < group_.world(); ++peer) {
    if (peer == group_.rank()) continue;
    const std::size_t begin = std::min(at.bytes, static_cast<std::size_t>(peer) * at.share);
    move_bytes(what_.data + at.begin + begin, group_.result(peer, step),
               std::min(at.share, at.bytes - begin));
  }
}

Direct::Direct(Group& group, Regions& regions, const void* data, std::size_t bytes)
    : group_(group), bytes_(bytes) {
  Place place;
  if (group.world() > 1) region_ = regions.find(data, bytes, place);
  std::memcpy(group.own_data(), &place, sizeof place);
}

bool Direct::everyone() {
  if (!region_) return false;
  for (int rank = 0; rank < group_.world(); ++rank) {
    Place place;
    std::memcpy(&place, group_.data_of(rank), sizeof place);
    // Of the peer's making: held against the bounds before use.
    if (place.region != region_->id || place.offset > region_->bytes ||
        bytes_ > region_->bytes - place.offset)
      return false;
    addresses_[static_cast<std::size_t>(rank)] = region_->part(rank) + place.offset;
  }
  return true;
}

void Direct::finish(Deadline deadline) {
  const std::uint32_t step = group_.step();
  group_.publish(Group::Word::wrote, step + 1);
  group_.publish(Group::Word::done, step + 1);
  group_.await(Group::Word::done, step + 1, Group::kAll, deadline);
  group_.advance(1);
}

void reduce_directly(Group& group, const Reduction& what, const Addresses& addresses) {
  const auto world = static_cast<std::size_t>(group.world());
  const std::size_t share = share_of(what.bytes(), group.world());
  const std::size_t begin = std::min(what.bytes(), static_cast<std::size_t>(group.rank()) * share);
  Addresses at;
  for (std::size_t rank = 0; rank < world; ++rank) at[rank] = addresses[rank] + begin;
  Addresses to = at;
  std::size_t outputs = world;
  if (what.root != Group::kAll) {
    to[0] = at[static_cast<std::size_t>(what.root)];
    outputs = 1;
  } else {
    std::swap(to[0], to[static_cast<std::size_t>(group.rank())]);
  }
  reduce_tiles({at.data(), world}, {to.data(), outputs}, std::min(share, what.bytes() - begin), what);
}

}  // namespace dtorch::shm
