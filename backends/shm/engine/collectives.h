// What ranks do with data once they have come together: small calls in one step, large ones through stages or
// directly in memory that all ranks see.
#pragma once
#include <array>
#include <cstddef>
#include <memory>

#include "backends/shm/engine/group.h"
#include "backends/shm/engine/memory.h"

namespace dtorch::shm {

/** Addresses by rank. */
using Addresses = std::array<std::byte*, kMaxWorld>;

/** A reduction under way. */
struct Reduction {
  std::byte* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  int root = Group::kAll;  ///< who gets the result

  std::size_t bytes() const { return count * size_of(type); }
};

/** Through the stages: each rank reduces its share of every piece and hands it to the others. The first piece may
 * have been laid down before arrive(). */
class StagedReduction {
 public:
  StagedReduction(Group& group, const Reduction& what, Deadline deadline);
  /** Lays the first piece down. */
  void begin();
  void run();

 private:
  struct Piece {
    std::size_t begin;  ///< in bytes
    std::size_t bytes;
    std::size_t share;  ///< bytes of one rank's share, the last one's may be less
  };
  Piece piece(std::size_t index) const;
  void put(std::size_t index);
  void combine(std::size_t index);
  void take(std::size_t index);

  Group& group_;
  const Reduction what_;
  const Deadline deadline_;
  const std::uint32_t base_;
  const std::size_t pieces_;
  bool begun_ = false;
};

/** Where all ranks' buffers are, when each lies in the same region; made of what they came to the call with. */
class Direct {
 public:
  /** Writes this rank's place into its data for arrive(). */
  Direct(Group& group, Regions& regions, const void* data, std::size_t bytes);
  bool own() const { return region_ != nullptr; }
  /** After arrive(): whether everyone's is, the same answer on all ranks. */
  bool everyone();
  const Addresses& addresses() const { return addresses_; }
  /** Waits until all have done their part: buffers may change again. */
  void finish(Deadline deadline);

 private:
  Group& group_;
  const std::size_t bytes_;
  std::shared_ptr<Region> region_;
  Addresses addresses_{};
};

/** All reduce their share of everyone's buffers into everyone's (or root's). */
void reduce_directly(Group& group, const Reduction& what, const Addresses& addresses);

/** Copies unless there is nothing to copy; the places may be the same. */
void move_bytes(void* to, const void* from, std::size_t bytes);

/**
 * Moves pieces through the stages: write(step's index, own stage), then, when `source` (or everyone) has written,
 * read(index, step).
 */
template <typename Write, typename Read>
void move_pieces(Group& group, std::size_t pieces, int source, Deadline deadline, Write write, Read read) {
  for (std::size_t index = 0; index < pieces; ++index) {
    const std::uint32_t step = group.step();
    group.await(Group::Word::done, step + 1 - kStages, Group::kAll, deadline);
    write(index, group.stage(group.rank(), step));
    group.publish(Group::Word::wrote, step + 1);
    if (source != group.rank()) group.await(Group::Word::wrote, step + 1, source, deadline);
    read(index, step);
    group.publish(Group::Word::done, step + 1);
    group.advance(1);
  }
}

}  // namespace dtorch::shm
