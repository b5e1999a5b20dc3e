#include "backends/tcp/engine/collectives.h"

#include <algorithm>
#include <cstring>

#include "core/bytes/reduce_kernels.h"

namespace dtorch::tcp {
namespace {

// Up to this many bytes from all peers together, whole vectors in one step beat shares in two.
constexpr std::size_t kWholeLimit = 64 << 10;
// More peers than this cost more in system calls than log2 steps do in waiting.
constexpr int kDirectPeers = 7;
// Scratch of a reduction: a piece of each peer's, which stays in the cache until it is added.
constexpr std::size_t kPiece = 256 << 10;
constexpr std::size_t kScratch = 2 << 20;
constexpr std::size_t kMinPiece = 16 << 10;
// Larger broadcasts are spread by all ranks.
constexpr std::size_t kTreeLimit = 64 << 10;

std::byte* bytes_at(void* memory, std::size_t offset) { return static_cast<std::byte*>(memory) + offset; }
const std::byte* bytes_at(const void* memory, std::size_t offset) {
  return static_cast<const std::byte*>(memory) + offset;
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

/** Adds pieces of all ranks' vectors in rank order. */
class Reduction : public PieceSink {
 public:
  Reduction(void* result, const void* mine, int rank, std::span<const void*> parts, DataType type,
            ReduceOp op)
      : result_(result),
        mine_(mine),
        rank_(static_cast<std::size_t>(rank)),
        parts_(parts),
        type_(type),
        op_(op) {}

  void take(std::size_t offset, std::size_t bytes) override {
    parts_[rank_] = bytes_at(mine_, offset);
    reduce_parts(bytes_at(result_, offset), parts_, bytes / size_of(type_), type_, op_);
  }

 private:
  void* result_;
  const void* mine_;
  std::size_t rank_;
  std::span<const void*> parts_;
  DataType type_;
  ReduceOp op_;
};

}  // namespace

std::byte* Collectives::scratch(std::size_t bytes) {
  if (scratch_bytes_ < bytes) {
    scratch_ = std::make_unique<std::byte[]>(bytes);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

// Bruck's: each step doubles the rows a rank has, for any number of ranks.
const std::byte* Collectives::doubling_gather(const void* mine, std::size_t bytes) {
  std::byte* rows = scratch(static_cast<std::size_t>(world_) * bytes);
  copy(rows, mine, bytes);
  for (int have = 1; have < world_; have *= 2) {
    const std::size_t length = static_cast<std::size_t>(std::min(have, world_ - have)) * bytes;
    const Send send{peer(-have), rows, length};
    const Recv recv{peer(have), rows + static_cast<std::size_t>(have) * bytes, length};
    exchange_.run({&send, 1}, {&recv, 1});
  }
  return rows;
}

void Collectives::small_all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) {
  const std::size_t bytes = count * size_of(type);
  parts_.assign(static_cast<std::size_t>(world_), data);
  if (world_ - 1 > kDirectPeers) {
    const std::byte* rows = doubling_gather(data, bytes);
    for (int i = 0; i < world_; ++i)
      parts_[static_cast<std::size_t>(peer(i))] = rows + static_cast<std::size_t>(i) * bytes;
  } else {
    std::byte* rows = scratch(static_cast<std::size_t>(world_) * bytes);
    sends_.clear();
    recvs_.clear();
    for (int i = 1; i < world_; ++i) {
      const int other = peer(i);
      std::byte* row = rows + static_cast<std::size_t>(other) * bytes;
      parts_[static_cast<std::size_t>(other)] = row;
      sends_.push_back({other, data, bytes});
      recvs_.push_back({other, row, bytes});
    }
    exchange_.run(sends_, recvs_);
  }
  reduce_parts(data, parts_, count, type, op);
}

/** `sends_` are the caller's. */
void Collectives::reduce_share(void* result, const void* mine, std::size_t count, DataType type,
                               ReduceOp op) {
  const auto ranks = static_cast<std::size_t>(world_);
  // Cut at cache lines, so that no piece ends within an element.
  const std::size_t piece = std::clamp(kScratch / ranks / 64 * 64, kMinPiece, kPiece);
  std::byte* rows = scratch(ranks * piece);
  parts_.assign(ranks, nullptr);
  recvs_.clear();
  for (int i = 1; i < world_; ++i) {
    const auto from = static_cast<std::size_t>(peer(-i));
    parts_[from] = rows + from * piece;
    recvs_.push_back({peer(-i), rows + from * piece, count * size_of(type)});
  }
  Reduction reduction(result, mine, rank_, parts_, type, op);
  exchange_.run_in_pieces(sends_, recvs_, piece, reduction);
}

void Collectives::gather_shares(std::byte* data, const Shares& shares) {
  sends_.clear();
  recvs_.clear();
  for (int i = 1; i < world_; ++i) {
    sends_.push_back({peer(i), data + shares.begin(rank_), shares.bytes(rank_)});
    recvs_.push_back({peer(-i), data + shares.begin(peer(-i)), shares.bytes(peer(-i))});
  }
  exchange_.run(sends_, recvs_);
}

void Collectives::all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) {
  const std::size_t size = size_of(type);
  if (count * size * static_cast<std::size_t>(world_ - 1) <= kWholeLimit)
    return small_all_reduce(data, count, type, op);
  const Shares shares{count, size, world_};
  auto* all = static_cast<std::byte*>(data);
  sends_.clear();
  for (int i = 1; i < world_; ++i)
    sends_.push_back({peer(i), all + shares.begin(peer(i)), shares.bytes(peer(i))});
  std::byte* mine = all + shares.begin(rank_);
  reduce_share(mine, mine, shares.bytes(rank_) / size, type, op);
  gather_shares(all, shares);
}

void Collectives::reduce(void* data, std::size_t count, DataType type, ReduceOp op, int root) {
  const std::size_t size = size_of(type);
  sends_.clear();
  if (world_ == 2 || count * size <= kWholeLimit) {
    if (rank_ == root) return reduce_share(data, data, count, type, op);
    const Send send{root, data, count * size};
    return exchange_.run({&send, 1}, {});
  }
  const Shares shares{count, size, world_};
  auto* all = static_cast<std::byte*>(data);
  for (int i = 1; i < world_; ++i)
    sends_.push_back({peer(i), all + shares.begin(peer(i)), shares.bytes(peer(i))});
  std::byte* mine = all + shares.begin(rank_);
  if (rank_ != root) {
    // Only the root's memory may change.
    const auto result = std::make_unique_for_overwrite<std::byte[]>(shares.bytes(rank_));
    reduce_share(result.get(), mine, shares.bytes(rank_) / size, type, op);
    const Send send{root, result.get(), shares.bytes(rank_)};
    return exchange_.run({&send, 1}, {});
  }
  reduce_share(mine, mine, shares.bytes(rank_) / size, type, op);
  recvs_.clear();
  for (int i = 1; i < world_; ++i)
    recvs_.push_back({peer(i), all + shares.begin(peer(i)), shares.bytes(peer(i))});
  exchange_.run({}, recvs_);
}

// Binomial: whoever has it sends it on, to twice as many each time.
void Collectives::tree_broadcast(void* data, std::size_t bytes, int root) {
  const int place = (rank_ - root + world_) % world_;
  int reach = 1;
  while (reach < world_ && (place & reach) == 0) reach *= 2;
  if (place != 0) {
    const Recv recv{(place - reach + root) % world_, data, bytes};
    exchange_.run({}, {&recv, 1});
  }
  sends_.clear();
  for (reach /= 2; reach > 0; reach /= 2) {
    if (place + reach < world_) sends_.push_back({(place + reach + root) % world_, data, bytes});
  }
  exchange_.run(sends_, {});
}

void Collectives::broadcast(void* data, std::size_t bytes, int root) {
  if (world_ == 2 || bytes <= kTreeLimit) return tree_broadcast(data, bytes, root);
  const Shares shares{bytes, 1, world_};
  auto* all = static_cast<std::byte*>(data);
  // The root's own share goes to everyone at once; the others' to their owners, who pass them on.
  sends_.clear();
  recvs_.clear();
  if (rank_ == root) {
    for (int i = 1; i < world_; ++i)
      sends_.push_back({peer(i), all + shares.begin(peer(i)), shares.bytes(peer(i))});
    exchange_.run(sends_, {});
    for (auto& send : sends_) send = {send.peer, all + shares.begin(rank_), shares.bytes(rank_)};
    return exchange_.run(sends_, {});
  }
  const Recv own{root, all + shares.begin(rank_), shares.bytes(rank_)};
  exchange_.run({}, {&own, 1});
  for (int i = 1; i < world_; ++i) {
    const int from = peer(-i);
    recvs_.push_back({from, all + shares.begin(from), shares.bytes(from)});
    if (peer(i) != root) sends_.push_back({peer(i), all + shares.begin(rank_), shares.bytes(rank_)});
  }
  exchange_.run(sends_, recvs_);
}

void Collectives::all_gather(void* out, const void* in, std::size_t bytes) {
  if (world_ - 1 > kDirectPeers && bytes * static_cast<std::size_t>(world_) <= kWholeLimit) {
    const std::byte* rows = doubling_gather(in, bytes);
    for (int i = 0; i < world_; ++i) {
      copy(bytes_at(out, static_cast<std::size_t>(peer(i)) * bytes),
           rows + static_cast<std::size_t>(i) * bytes, bytes);
    }
    return;
  }
  const Shares shares{static_cast<std::size_t>(world_) * bytes, 1, world_};
  copy(bytes_at(out, shares.begin(rank_)), in, bytes);
  gather_shares(static_cast<std::byte*>(out), shares);
}

void Collectives::gather(void* out, const void* in, std::size_t bytes, int root) {
  if (rank_ != root) {
    const Send send{root, in, bytes};
    return exchange_.run({&send, 1}, {});
  }
  copy(bytes_at(out, static_cast<std::size_t>(rank_) * bytes), in, bytes);
  recvs_.clear();
  for (int i = 1; i < world_; ++i)
    recvs_.push_back({peer(i), bytes_at(out, static_cast<std::size_t>(peer(i)) * bytes), bytes});
  exchange_.run({}, recvs_);
}

void Collectives::scatter(void* out, const void* in, std::size_t bytes, int root) {
  if (rank_ != root) {
    const Recv recv{root, out, bytes};
    return exchange_.run({}, {&recv, 1});
  }
  copy(out, bytes_at(in, static_cast<std::size_t>(rank_) * bytes), bytes);
  sends_.clear();
  for (int i = 1; i < world_; ++i)
    sends_.push_back({peer(i), bytes_at(in, static_cast<std::size_t>(peer(i)) * bytes), bytes});
  exchange_.run(sends_, {});
}

void Collectives::reduce_scatter(void* out, const void* in, std::size_t count, DataType type, ReduceOp op) {
  const std::size_t bytes = count * size_of(type);
  sends_.clear();
  for (int i = 1; i < world_; ++i)
    sends_.push_back({peer(i), bytes_at(in, static_cast<std::size_t>(peer(i)) * bytes), bytes});
  reduce_share(out, bytes_at(in, static_cast<std::size_t>(rank_) * bytes), count, type, op);
}

void Collectives::all_to_all(void* out, const void* in, std::span<const std::size_t> out_bytes,
                             std::span<const std::size_t> in_bytes) {
  sends_.clear();
  recvs_.clear();
  std::size_t out_at = 0;
  std::size_t in_at = 0;
  for (int rank = 0; rank < world_; ++rank) {
    const auto to = in_bytes[static_cast<std::size_t>(rank)];
    const auto from = out_bytes[static_cast<std::size_t>(rank)];
    if (rank == rank_) {
      copy(bytes_at(out, out_at), bytes_at(in, in_at), std::min(to, from));
    } else {
      sends_.push_back({rank, bytes_at(in, in_at), to});
      recvs_.push_back({rank, bytes_at(out, out_at), from});
    }
    out_at += from;
    in_at += to;
  }
  std::rotate(sends_.begin(), sends_.begin() + rank_, sends_.end());
  exchange_.run(sends_, recvs_);
}

void Collectives::barrier() {
  if (world_ - 1 > kDirectPeers) {
    doubling_gather(nullptr, 0);
    return;
  }
  gather_shares(nullptr, {0, 1, world_});
}

}  // namespace dtorch::tcp
