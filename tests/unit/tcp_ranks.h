// Groups of the tcp transport whose ranks are threads of a test.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/tcp/engine/engine.h"
#include "core/bytes/peer_error.h"
#include "tests/unit/plain_stores.h"

namespace dtorch {

constexpr auto kTestPatience = std::chrono::seconds(30);

inline Deadline soon() { return Deadline::after(kTestPatience); }

/** A call with everything that the engine compares. */
inline ByteCall call_of(Operation operation, std::uint64_t sequence, std::size_t count,
                        DataType type = DataType::float32, int root = -1, Deadline deadline = soon()) {
  ByteCall call{{}, deadline};
  call.signature.operation = operation;
  call.signature.sequence = sequence;
  call.signature.count = static_cast<std::int64_t>(count);
  call.signature.dtype = static_cast<std::int8_t>(type);
  call.signature.root = root;
  return call;
}

using RankBody = std::function<void(ByteCollectives&, int rank)>;

/** Runs the body on every rank of a new group; what each threw, if it did. Groups end together. */
inline std::vector<std::optional<PeerError>> outcomes(int world, const RankBody& body,
                                                      const std::string& address = "127.0.0.1") {
  MemoryStore store;
  std::vector<std::optional<PeerError>> errors(static_cast<std::size_t>(world));
  std::vector<std::unique_ptr<ByteCollectives>> groups(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      try {
        groups[at] = connect_tcp(store, rank, world, address, soon());
        body(*groups[at], rank);
      } catch (const PeerError& error) {
        errors[at] = error;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

/** As outcomes, and any failure is the test's. */
inline void run_ranks(int world, const RankBody& body, const std::string& address = "127.0.0.1") {
  for (const auto& error : outcomes(world, body, address)) {
    if (error) throw PeerError(*error);
  }
}

}  // namespace dtorch
