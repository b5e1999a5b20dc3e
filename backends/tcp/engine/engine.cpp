#include "backends/tcp/engine/engine.h"

#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "backends/tcp/engine/collectives.h"
#include "core/bytes/reduce_kernels.h"

namespace dtorch {
namespace tcp {
namespace {

class TcpCollectives : public ByteCollectives {
 public:
  explicit TcpCollectives(Mesh mesh)
      : rank_(mesh.rank),
        world_(mesh.world),
        direct_(mesh, fate_),
        exchange_(mesh, fate_, direct_),
        collectives_(rank_, world_, exchange_) {}
  ~TcpCollectives() override {
    if (!fate_.failed()) leave({.done = true, .kind = ErrorKind::lost, .ranks = {}, .text = {}});
  }
  TcpCollectives(const TcpCollectives&) = delete;
  TcpCollectives& operator=(const TcpCollectives&) = delete;

  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op, const ByteCall& call) override {
    check_reduction(type, op);
    if (alone(data, data, count * size_of(type))) return;
    collective(call, [&] { collectives_.all_reduce(data, count, type, op); });
  }
  void reduce(void* data, std::size_t count, DataType type, ReduceOp op, int root,
              const ByteCall& call) override {
    check_reduction(type, op);
    if (alone(data, data, count * size_of(type))) return;
    collective(call, [&] { collectives_.reduce(data, count, type, op, root); });
  }
  void broadcast(void* data, std::size_t bytes, int root, const ByteCall& call) override {
    if (alone(data, data, bytes)) return;
    collective(call, [&] { collectives_.broadcast(data, bytes, root); });
  }
  void all_gather(void* out, const void* in, std::size_t bytes, const ByteCall& call) override {
    if (alone(out, in, bytes)) return;
    collective(call, [&] { collectives_.all_gather(out, in, bytes); });
  }
  void gather(void* out, const void* in, std::size_t bytes, int root, const ByteCall& call) override {
    if (alone(out, in, bytes)) return;
    collective(call, [&] { collectives_.gather(out, in, bytes, root); });
  }
  void scatter(void* out, const void* in, std::size_t bytes, int root, const ByteCall& call) override {
    if (alone(out, in, bytes)) return;
    collective(call, [&] { collectives_.scatter(out, in, bytes, root); });
  }
  void reduce_scatter(void* out, const void* in, std::size_t count, DataType type, ReduceOp op,
                      const ByteCall& call) override {
    check_reduction(type, op);
    if (alone(out, in, count * size_of(type))) return;
    collective(call, [&] { collectives_.reduce_scatter(out, in, count, type, op); });
  }
  void all_to_all(void* out, const void* in, std::span<const std::size_t> out_bytes,
                  std::span<const std::size_t> in_bytes, const ByteCall& call) override;
  void barrier(const ByteCall& call) override {
    if (alone(nullptr, nullptr, 0)) return;
    collective(call, [&] { collectives_.barrier(); });
  }
  void send(const void* data, std::size_t bytes, int destination, int tag, const ByteCall& call) override {
    check_peer(destination);
    guarded([&] { direct_.send(data, bytes, destination, tag, call); });
  }
  void recv(void* data, std::size_t bytes, int source, int tag, const ByteCall& call) override {
    check_peer(source);
    guarded([&] { direct_.recv(data, bytes, source, tag, call); });
  }

  std::vector<int> missing() const override { return exchange_.missing(); }
  void abort(const std::string& reason) override {
    fail({ErrorKind::lost, reason},
         {false, ErrorKind::lost, {rank_}, fmt::format("tcp: rank {} left: {}", rank_, reason)});
  }
  std::shared_ptr<void> allocate(std::size_t, Deadline) override { return nullptr; }
  std::shared_ptr<void> allocate_common(std::size_t, Deadline) override { return nullptr; }

 private:
  // Refused before anything is sent: the same on every rank, and no reason to end the group.
  static void check_reduction(DataType type, ReduceOp op) {
    const void* nothing = nullptr;
    reduce_parts(nullptr, {&nothing, 1}, 0, type, op);
  }
  void check_peer(int peer) const {
    if (peer < 0 || peer >= world_ || peer == rank_)
      throw Error(ErrorKind::usage,
                  fmt::format("tcp: rank {} cannot send to or receive from rank {}", rank_, peer));
  }

  /** Does what is to be done where there is no other rank. */
  bool alone(void* out, const void* in, std::size_t bytes) const {
    if (world_ > 1) return false;
    fate_.check();
    if (bytes > 0 && out != in) std::memmove(out, in, bytes);
    return true;
  }

  template <typename Body>
  void collective(const ByteCall& call, const Body& body) {
    guarded([&] {
      exchange_.begin(call);
      body();
      exchange_.end();
    });
  }

  template <typename Body>
  void guarded(const Body& body) {
    fate_.check();
    try {
      body();
    } catch (const PeerError& error) {
      exchange_.end();
      fail(error, {false, error.kind(), error.ranks(), error.what()});
      throw;
    }
  }

  void fail(const PeerError& error, const Farewell& farewell) {
    if (!fate_.fail(error)) return;
    direct_.wake();
    leave(farewell);
  }
  // In this order: whoever sees an end looks for the reason, which is then under way.
  void leave(const Farewell& farewell) {
    direct_.say(farewell);
    exchange_.shut();
  }

  const int rank_;
  const int world_;
  Fate fate_;
  Direct direct_;
  Exchange exchange_;
  Collectives collectives_;
};

void TcpCollectives::all_to_all(void* out, const void* in, std::span<const std::size_t> out_bytes,
                                std::span<const std::size_t> in_bytes, const ByteCall& call) {
  if (alone(out, in, in_bytes[0])) return;
  collective(call, [&] {
    const std::size_t size = std::max<std::size_t>(1, size_of(static_cast<DataType>(call.signature.dtype)));
    std::vector<std::int64_t> to;
    std::vector<std::int64_t> from;
    for (const auto bytes : in_bytes) to.push_back(static_cast<std::int64_t>(bytes / size));
    for (const auto bytes : out_bytes) from.push_back(static_cast<std::int64_t>(bytes / size));
    exchange_.expect_counts(to, from);
    collectives_.all_to_all(out, in, out_bytes, in_bytes);
    // Counts are compared by pairs: nobody returns before all pairs agree.
    if (!call.agreed) collectives_.barrier();
  });
}

}  // namespace
}  // namespace tcp

std::unique_ptr<ByteCollectives> connect_tcp(PlainStore& store, int rank, int world,
                                             const std::string& bind_address, Deadline deadline) {
  return std::make_unique<tcp::TcpCollectives>(tcp::connect_mesh(store, rank, world, bind_address, deadline));
}

}  // namespace dtorch
