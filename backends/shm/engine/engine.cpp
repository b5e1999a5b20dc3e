#include "backends/shm/engine/engine.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/shm/engine/allocation.h"
#include "backends/shm/engine/bootstrap.h"
#include "backends/shm/engine/collectives.h"
#include "backends/shm/engine/group.h"
#include "backends/shm/engine/mail.h"
#include "core/bytes/reduce_kernels.h"

namespace dtorch::shm {
namespace {

const std::byte* at(const void* data, std::size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* at(void* data, std::size_t offset) { return static_cast<std::byte*>(data) + offset; }

std::size_t pieces(std::size_t bytes, std::size_t piece) { return (bytes + piece - 1) / piece; }
/** Bytes of a piece of so many; none past the end. */
std::size_t length_at(std::size_t bytes, std::size_t begin, std::size_t piece) {
  return bytes > begin ? std::min(piece, bytes - begin) : 0;
}

class ShmCollectives : public ByteCollectives {
 public:
  ShmCollectives(Connection connection, const Layout& layout, std::shared_ptr<std::byte> memory, int rank,
                 int world, Mapper map)
      : group_(std::move(connection), layout, std::move(memory), rank, world),
        map_(std::move(map)),
        rank_(rank),
        world_(static_cast<std::size_t>(world)) {}

  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op, const ByteCall& call) override {
    reduce_to({static_cast<std::byte*>(data), count, type, op, Group::kAll}, call);
  }
  void reduce(void* data, std::size_t count, DataType type, ReduceOp op, int root,
              const ByteCall& call) override {
    reduce_to({static_cast<std::byte*>(data), count, type, op, root}, call);
  }
  void broadcast(void* data, std::size_t bytes, int root, const ByteCall& call) override;
  void all_gather(void* out, const void* in, std::size_t bytes, const ByteCall& call) override {
    gather_to(out, in, bytes, Group::kAll, call);
  }
  void gather(void* out, const void* in, std::size_t bytes, int root, const ByteCall& call) override {
    gather_to(out, in, bytes, root, call);
  }
  void scatter(void* out, const void* in, std::size_t bytes, int root, const ByteCall& call) override;
  void reduce_scatter(void* out, const void* in, std::size_t count, DataType type, ReduceOp op,
                      const ByteCall& call) override;
  void all_to_all(void* out, const void* in, std::span<const std::size_t> out_bytes,
                  std::span<const std::size_t> in_bytes, const ByteCall& call) override;
  void barrier(const ByteCall& call) override {
    guarded([&] { group_.arrive(call); });
  }
  void send(const void* data, std::size_t bytes, int destination, int tag, const ByteCall& call) override {
    guarded([&] {
      send_mail(group_.mailbox(rank_, destination), group_.watch(), data, bytes, rank_, destination, tag,
                call);
    });
  }
  void recv(void* data, std::size_t bytes, int source, int tag, const ByteCall& call) override {
    guarded([&] {
      receive_mail(group_.mailbox(source, rank_), group_.watch(), data, bytes, rank_, source, tag, call);
    });
  }

  std::vector<int> missing() const override { return group_.missing(); }
  void abort(const std::string& reason) override { group_.watch().abort(reason); }
  std::shared_ptr<void> allocate(std::size_t bytes, Deadline deadline) override {
    return allocate_region(bytes, deadline, rank_);
  }
  std::shared_ptr<void> allocate_common(std::size_t bytes, Deadline deadline) override {
    return allocate_region((bytes + world_ - 1) / world_, deadline, 0);  // the parts lie side by side
  }

 private:
  /** Runs a call; its failure is that of every later one. */
  template <typename Body>
  void guarded(Body body) {
    if (failed_.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mutex_);
      std::rethrow_exception(failure_);
    }
    try {
      group_.watch().check();
      body();
    } catch (const PeerError& error) {
      if (error.kind() == ErrorKind::lost && error.ranks().size() == 1)
        group_.watch().report_lost(error.ranks().front());
      keep(std::current_exception());
      throw;
    } catch (...) {
      keep(std::current_exception());
      throw;
    }
  }
  void keep(const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
    failed_.store(true, std::memory_order_release);
  }

  std::shared_ptr<void> allocate_region(std::size_t bytes, Deadline deadline, int first);
  void reduce_to(const Reduction& what, const ByteCall& call);
  void gather_to(void* out, const void* in, std::size_t bytes, int root, const ByteCall& call);
  template <typename SizeAt>
  void check_counts(const ByteCall& call, const SizeAt& size_at) const;
  bool is_root(int root) const { return root == Group::kAll || root == rank_; }
  /** A small call: this rank's data goes with its arrival. */
  void arrive_with(const void* data, std::size_t bytes, const ByteCall& call) {
    if (bytes != 0) std::memcpy(group_.own_data(), data, bytes);
    group_.arrive(call);
  }
  std::size_t own(std::size_t bytes) const { return static_cast<std::size_t>(rank_) * bytes; }

  Group group_;
  Regions regions_;
  const Mapper map_;
  const int rank_;
  const std::size_t world_;
  std::uint32_t allocations_ = 0;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;  // guarded by mutex_
};

void ShmCollectives::reduce_to(const Reduction& what, const ByteCall& call) {
  guarded([&] {
    const std::size_t bytes = what.bytes();
    if (bytes <= kSmall) {
      arrive_with(what.data, bytes, call);
      if (!is_root(what.root) || bytes == 0) return;
      std::array<const void*, kMaxWorld> parts;
      for (std::size_t rank = 0; rank < world_; ++rank) parts[rank] = group_.data_of(static_cast<int>(rank));
      reduce_parts(what.data, {parts.data(), world_}, what.count, what.type, what.op);
      return;
    }
    Direct direct(group_, regions_, what.data, bytes);
    StagedReduction staged(group_, what, call.deadline);
    if (!direct.own()) staged.begin();
    group_.arrive(call);
    if (direct.everyone()) {
      reduce_directly(group_, what, direct.addresses());
      direct.finish(call.deadline);
    } else {
      staged.run();
    }
  });
}

void ShmCollectives::broadcast(void* data, std::size_t bytes, int root, const ByteCall& call) {
  guarded([&] {
    if (bytes <= kSmall) {
      arrive_with(data, rank_ == root ? bytes : 0, call);
      if (rank_ != root) move_bytes(data, group_.data_of(root), bytes);
      return;
    }
    Direct direct(group_, regions_, data, bytes);
    group_.arrive(call);
    if (direct.everyone()) {
      if (rank_ != root) move_bytes(data, direct.addresses()[static_cast<std::size_t>(root)], bytes);
      direct.finish(call.deadline);
      return;
    }
    move_pieces(
        group_, pieces(bytes, kChunk), root, call.deadline,
        [&](std::size_t index, std::byte* stage) {
          if (rank_ == root)
            move_bytes(stage, at(data, index * kChunk), length_at(bytes, index * kChunk, kChunk));
        },
        [&](std::size_t index, std::uint32_t step) {
          if (rank_ == root) return;
          move_bytes(at(data, index * kChunk), group_.stage(root, step),
                     length_at(bytes, index * kChunk, kChunk));
        });
  });
}

void ShmCollectives::gather_to(void* out, const void* in, std::size_t bytes, int root, const ByteCall& call) {
  guarded([&] {
    const auto collect = [&](auto from_rank, std::size_t begin, std::size_t length) {
      if (!is_root(root)) return;
      for (int rank = 0; rank < group_.world(); ++rank) {
        const std::size_t offset = static_cast<std::size_t>(rank) * bytes + begin;
        if (length != 0) move_bytes(at(out, offset), rank == rank_ ? at(in, begin) : from_rank(rank), length);
      }
    };
    if (bytes <= kSmall) {
      arrive_with(in, bytes, call);
      collect([&](int rank) { return group_.data_of(rank); }, 0, bytes);
      return;
    }
    Direct direct(group_, regions_, in, bytes);
    group_.arrive(call);
    if (direct.everyone()) {
      const auto from = [&](int rank) -> const std::byte* {
        return direct.addresses()[static_cast<std::size_t>(rank)];
      };
      collect(from, 0, bytes);
      direct.finish(call.deadline);
      return;
    }
    move_pieces(
        group_, pieces(bytes, kChunk), is_root(root) ? Group::kAll : rank_, call.deadline,
        [&](std::size_t index, std::byte* stage) {
          move_bytes(stage, at(in, index * kChunk), length_at(bytes, index * kChunk, kChunk));
        },
        [&](std::size_t index, std::uint32_t step) {
          const auto from = [&](int rank) -> const std::byte* { return group_.stage(rank, step); };
          collect(from, index * kChunk, length_at(bytes, index * kChunk, kChunk));
        });
  });
}

void ShmCollectives::scatter(void* out, const void* in, std::size_t bytes, int root, const ByteCall& call) {
  guarded([&] {
    if (bytes * world_ <= kSmall) {
      arrive_with(in, rank_ == root ? bytes * world_ : 0, call);
      move_bytes(out, rank_ == root ? at(in, own(bytes)) : group_.data_of(root) + own(bytes), bytes);
      return;
    }
    group_.arrive(call);
    if (rank_ == root) move_bytes(out, at(in, own(bytes)), bytes);
    const std::size_t lane = group_.layout().lane();
    move_pieces(
        group_, pieces(bytes, lane), root, call.deadline,
        [&](std::size_t index, std::byte* stage) {
          for (std::size_t rank = 0; rank_ == root && rank < world_; ++rank)
            move_bytes(stage + rank * lane, at(in, rank * bytes + index * lane),
                       length_at(bytes, index * lane, lane));
        },
        [&](std::size_t index, std::uint32_t step) {
          if (rank_ == root) return;
          move_bytes(at(out, index * lane), group_.stage(root, step) + own(lane),
                     length_at(bytes, index * lane, lane));
        });
  });
}

void ShmCollectives::reduce_scatter(void* out, const void* in, std::size_t count, DataType type, ReduceOp op,
                                    const ByteCall& call) {
  guarded([&] {
    const std::size_t bytes = count * size_of(type);
    std::array<const void*, kMaxWorld> parts;
    const auto reduce_from = [&](auto part_of, std::size_t begin, std::size_t length) {
      for (std::size_t rank = 0; rank < world_; ++rank) parts[rank] = part_of(static_cast<int>(rank));
      if (length != 0) reduce_parts(at(out, begin), {parts.data(), world_}, length / size_of(type), type, op);
    };
    if (bytes * world_ <= kSmall) {
      arrive_with(in, bytes * world_, call);
      reduce_from([&](int rank) { return group_.data_of(rank) + own(bytes); }, 0, bytes);
      return;
    }
    Direct direct(group_, regions_, in, bytes * world_);
    group_.arrive(call);
    if (direct.everyone()) {
      reduce_from([&](int rank) { return direct.addresses()[static_cast<std::size_t>(rank)] + own(bytes); },
                  0, bytes);
      direct.finish(call.deadline);
      return;
    }
    const std::size_t lane = group_.layout().lane();
    move_pieces(
        group_, pieces(bytes, lane), Group::kAll, call.deadline,
        [&](std::size_t index, std::byte* stage) {
          for (std::size_t rank = 0; rank < world_; ++rank) {
            if (static_cast<int>(rank) == rank_) continue;
            move_bytes(stage + rank * lane, at(in, rank * bytes + index * lane),
                       length_at(bytes, index * lane, lane));
          }
        },
        [&](std::size_t index, std::uint32_t step) {
          const auto from = [&](int rank) -> const std::byte* {
            return rank == rank_ ? at(in, own(bytes) + index * lane) : group_.stage(rank, step) + own(lane);
          };
          reduce_from(from, index * lane, length_at(bytes, index * lane, lane));
        });
  });
}

/** Every rank compares all pairs, so that all of them hear of a disagreement. */
template <typename SizeAt>
void ShmCollectives::check_counts(const ByteCall& call, const SizeAt& size_at) const {
  const std::size_t element = std::max<std::size_t>(1, size_of(static_cast<DataType>(call.signature.dtype)));
  const auto view = [&](int rank, int peer) {
    CallSignature signature = group_.signature_of(rank);
    const auto other = static_cast<std::size_t>(peer);
    signature.to_peer = static_cast<std::int64_t>(size_at(rank, other) / element);
    signature.from_peer = static_cast<std::int64_t>(size_at(rank, world_ + other) / element);
    return signature;
  };
  for (int rank = 0; rank < group_.world(); ++rank) {
    for (int peer = 0; peer <= rank; ++peer) {
      const auto mine = view(rank, peer);
      const auto theirs = view(peer, rank);
      if (!agree(mine, theirs))
        throw PeerError(ErrorKind::disagree, disagreement(rank, mine, peer, theirs), {rank, peer});
    }
  }
}

void ShmCollectives::all_to_all(void* out, const void* in, std::span<const std::size_t> out_bytes,
                                std::span<const std::size_t> in_bytes, const ByteCall& call) {
  guarded([&] {
    // Each rank comes with its two rows of sizes; all together they say how many pieces there are.
    std::memcpy(group_.own_data(), in_bytes.data(), world_ * sizeof(std::size_t));
    std::memcpy(group_.own_data() + world_ * sizeof(std::size_t), out_bytes.data(),
                world_ * sizeof(std::size_t));
    group_.arrive(call);
    const auto size_at = [&](int rank, std::size_t index) {
      std::size_t bytes = 0;
      std::memcpy(&bytes, group_.data_of(rank) + index * sizeof bytes, sizeof bytes);
      return bytes;
    };
    check_counts(call, size_at);
    std::size_t most = 0;
    for (int rank = 0; rank < group_.world(); ++rank) {
      for (std::size_t to = 0; to < world_; ++to) most = std::max(most, size_at(rank, to));
    }
    const std::size_t lane = group_.layout().lane();
    move_pieces(
        group_, pieces(most, lane), Group::kAll, call.deadline,
        [&](std::size_t index, std::byte* stage) {
          const std::byte* from = static_cast<const std::byte*>(in);
          for (std::size_t rank = 0; rank < world_; from += in_bytes[rank++]) {
            const std::size_t length = length_at(in_bytes[rank], index * lane, lane);
            if (length != 0) move_bytes(stage + rank * lane, from + index * lane, length);
          }
        },
        [&](std::size_t index, std::uint32_t step) {
          std::byte* to = static_cast<std::byte*>(out);
          for (std::size_t rank = 0; rank < world_; to += out_bytes[rank++]) {
            const std::size_t length = length_at(out_bytes[rank], index * lane, lane);
            if (length != 0)
              move_bytes(to + index * lane, group_.stage(static_cast<int>(rank), step) + own(lane), length);
          }
        });
  });
}

/** So many bytes for each rank; gives the memory from one rank's part on. */
std::shared_ptr<void> ShmCollectives::allocate_region(std::size_t bytes, Deadline deadline, int first) {
  if (world_ == 1 || bytes == 0) return nullptr;
  std::shared_ptr<void> memory;
  guarded([&] {
    const auto region =
        share_region(group_.sockets(), map_, rank_, ++allocations_, round_up(bytes, kPage), deadline);
    regions_.add(region);
    memory = std::shared_ptr<void>(region, region->part(first));
  });
  return memory;
}

}  // namespace

std::unique_ptr<ByteCollectives> connect_shm(PlainStore& store, int rank, int world, Deadline deadline,
                                             const Options& options) {
  if (world < 1 || world > kMaxWorld)
    throw Error(ErrorKind::usage, "shm serves 1 to 64 ranks, not " + std::to_string(world));
  const Layout layout(world);
  Connection connection = connect(store, rank, world, layout.total(), layout.reserved(), deadline);
  auto memory = options.map(connection.memory.get(), layout.total());
  connection.memory.reset();
  return std::make_unique<ShmCollectives>(std::move(connection), layout, std::move(memory), rank, world,
                                          options.map);
}

}  // namespace dtorch::shm
