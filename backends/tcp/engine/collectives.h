// The algorithms: which memory goes to whom, in terms of Exchange.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backends/tcp/engine/exchange.h"

namespace dtorch::tcp {

/**
 * Every reduction gathers the raw values of all ranks, whole vectors where they are small and a rank's share where
 * they are large, and computes them with reduce_parts: the order of summing is the ranks', whatever the algorithm.
 * At least two ranks. Used by one thread at a time.
 */
class Collectives {
 public:
  Collectives(int rank, int world, Exchange& exchange) : rank_(rank), world_(world), exchange_(exchange) {}

  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op);
  void reduce(void* data, std::size_t count, DataType type, ReduceOp op, int root);
  void broadcast(void* data, std::size_t bytes, int root);
  void all_gather(void* out, const void* in, std::size_t bytes);
  void gather(void* out, const void* in, std::size_t bytes, int root);
  void scatter(void* out, const void* in, std::size_t bytes, int root);
  void reduce_scatter(void* out, const void* in, std::size_t count, DataType type, ReduceOp op);
  void all_to_all(void* out, const void* in, std::span<const std::size_t> out_bytes,
                  std::span<const std::size_t> in_bytes);
  void barrier();

 private:
  /** How a vector is divided among the ranks, in bytes; cut at elements. */
  struct Shares {
    std::size_t count;
    std::size_t size;
    int world;
    std::size_t begin(int rank) const {
      const auto at = static_cast<std::size_t>(rank);
      const auto ranks = static_cast<std::size_t>(world);
      return (count / ranks * at + std::min(at, count % ranks)) * size;
    }
    std::size_t bytes(int rank) const { return begin(rank + 1) - begin(rank); }
  };

  std::byte* scratch(std::size_t bytes);
  int peer(int distance) const { return (rank_ + distance + world_) % world_; }
  /** Rows of all ranks: row i in the returned memory is rank `peer(i)`'s; row 0 this one's. */
  const std::byte* doubling_gather(const void* mine, std::size_t bytes);
  void small_all_reduce(void* data, std::size_t count, DataType type, ReduceOp op);
  /** Reduces what all ranks have sent of this rank's share, and sends the others theirs. */
  void reduce_share(void* result, const void* mine, std::size_t count, DataType type, ReduceOp op);
  /** Everyone's share, in place: this rank's is there. */
  void gather_shares(std::byte* data, const Shares& shares);
  void tree_broadcast(void* data, std::size_t bytes, int root);

  const int rank_;
  const int world_;
  Exchange& exchange_;
  std::unique_ptr<std::byte[]> scratch_;  // kept: memory that was touched before costs no page faults
  std::size_t scratch_bytes_ = 0;
  std::vector<Send> sends_;
  std::vector<Recv> recvs_;
  std::vector<const void*> parts_;
};

}  // namespace dtorch::tcp
