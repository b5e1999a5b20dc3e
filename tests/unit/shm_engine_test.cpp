// The shared-memory engine with ranks as threads: every operation against a serial oracle, and its failures.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/host.h"
#include "tests/unit/shm_ranks.h"

namespace dtorch::shm {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kMost = 1U << 20;
const std::vector<std::size_t> kCounts{0, 1, 7, 1023, 65537, kMost};

struct World {
  int size;
  bool shared;
};
class ShmCollectivesTest : public ::testing::TestWithParam<World> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ShmCollectivesTest,
                         ::testing::Values(World{1, false}, World{2, false}, World{2, true}, World{3, false},
                                           World{3, true}, World{5, false}, World{5, true}, World{8, false},
                                           World{8, true}),
                         [](const auto& world) {
                           return std::to_string(world.param.size) +
                                  (world.param.shared ? "Shared" : "Private");
                         });

/** One rank's floats. */
void fill(float* data, int rank, std::size_t count, std::size_t shift = 0) {
  for (std::size_t i = 0; i < count; ++i) data[i] = value_at(rank, i + shift);
}

float sum_at(int world, std::size_t index) {
  float sum = 0;
  for (int rank = 0; rank < world; ++rank) sum += value_at(rank, index);
  return sum;
}

/** Index of the first element that is not as expected; count if all are. */
template <typename Expected>
std::size_t first_wrong(const float* data, std::size_t count, Expected expected) {
  std::size_t i = 0;
  while (i < count && data[i] == expected(i)) ++i;
  return i;
}

TEST_P(ShmCollectivesTest, AllReduceAndReduce) {
  const auto [world, shared] = GetParam();
  run_threads(world, [&, world = world, shared = shared](ByteCollectives& group, int rank) {
    const Buffer buffer(group, kMost * sizeof(float), shared);
    auto* data = buffer.as<float>();
    Caller caller;
    for (const auto count : kCounts) {
      const auto sum = [&](std::size_t i) { return sum_at(world, i); };
      const auto mine = [&](std::size_t i) { return value_at(rank, i); };
      fill(data, rank, count);
      group.all_reduce(data, count, DataType::float32, ReduceOp::sum, caller(Operation::all_reduce, count));
      EXPECT_EQ(first_wrong(data, count, sum), count);
      fill(data, rank, count);
      group.all_reduce(data, count, DataType::float32, ReduceOp::avg, caller(Operation::all_reduce, count));
      EXPECT_EQ(first_wrong(data, count, [&](auto i) { return sum(i) / static_cast<float>(world); }), count);
      for (const int root : {0, world - 1}) {
        fill(data, rank, count);
        group.reduce(data, count, DataType::float32, ReduceOp::sum, root,
                     caller(Operation::reduce, count, DataType::float32, root));
        if (rank == root) {
          EXPECT_EQ(first_wrong(data, count, sum), count);
        } else {
          EXPECT_EQ(first_wrong(data, count, mine), count);
        }
      }
    }
  });
}

TEST_P(ShmCollectivesTest, EveryTypeIsReduced) {
  const auto [world, shared] = GetParam();
  run_threads(world, [&, world = world, shared = shared](ByteCollectives& group, int rank) {
    const Buffer buffer(group, 300'000 * sizeof(double), shared);
    Caller caller;
    for (const auto type :
         {DataType::float16, DataType::bfloat16, DataType::float64, DataType::int32, DataType::uint8}) {
      for (const std::size_t count : {7UL, 1023UL, 300'000UL}) {
        for (std::size_t i = 0; i < count; ++i) store_value(buffer.data(), i, type, value_at(rank, i));
        group.all_reduce(buffer.data(), count, type, ReduceOp::sum,
                         caller(Operation::all_reduce, count, type));
        std::vector<double> expected(count);
        for (std::size_t i = 0; i < count; ++i) store_value(expected.data(), i, type, sum_at(world, i));
        EXPECT_EQ(std::memcmp(buffer.data(), expected.data(), count * size_of(type)), 0) << to_string(type);
      }
    }
  });
}

TEST_P(ShmCollectivesTest, BroadcastGatherAndScatter) {
  const auto [world, shared] = GetParam();
  run_threads(world, [&, world = world, shared = shared](ByteCollectives& group, int rank) {
    const auto ranks = static_cast<std::size_t>(world);
    const Buffer one(group, kMost * sizeof(float), shared);
    const Buffer all(group, ranks * kMost * sizeof(float), shared);
    Caller caller;
    for (const auto count : kCounts) {
      const std::size_t bytes = count * sizeof(float);
      const auto from = [&](int who) { return [who](std::size_t i) { return value_at(who, i); }; };
      const auto expect_all = [&] {
        for (int who = 0; who < world; ++who)
          EXPECT_EQ(first_wrong(all.as<float>() + static_cast<std::size_t>(who) * count, count, from(who)),
                    count);
      };
      const int root = world / 2;
      fill(one.as<float>(), rank, count);
      group.all_gather(all.data(), one.data(), bytes, caller(Operation::all_gather, count));
      expect_all();
      // In place.
      std::memset(all.data(), 0, ranks * bytes);
      float* own = all.as<float>() + static_cast<std::size_t>(rank) * count;
      fill(own, rank, count);
      group.all_gather(all.data(), own, bytes, caller(Operation::all_gather, count));
      expect_all();
      std::memset(all.data(), 0, ranks * bytes);
      group.gather(rank == root ? all.data() : nullptr, one.data(), bytes, root,
                   caller(Operation::gather, count, DataType::float32, root));
      if (rank == root) expect_all();
      group.scatter(one.data(), rank == root ? all.data() : nullptr, bytes, root,
                    caller(Operation::scatter, count, DataType::float32, root));
      EXPECT_EQ(first_wrong(one.as<float>(), count, from(rank)), count);
      group.broadcast(one.data(), bytes, root, caller(Operation::broadcast, count, DataType::float32, root));
      EXPECT_EQ(first_wrong(one.as<float>(), count, from(root)), count);
      group.barrier(caller(Operation::barrier, 0));
    }
  });
}

TEST_P(ShmCollectivesTest, ReduceScatter) {
  const auto [world, shared] = GetParam();
  run_threads(world, [&, world = world, shared = shared](ByteCollectives& group, int rank) {
    const auto ranks = static_cast<std::size_t>(world);
    const Buffer in(group, ranks * kMost * sizeof(float), shared);
    const Buffer out(group, kMost * sizeof(float), shared);
    Caller caller;
    for (const auto count : kCounts) {
      for (const bool in_place : {false, true}) {
        const std::size_t begin = static_cast<std::size_t>(rank) * count;
        fill(in.as<float>(), rank, ranks * count);
        float* to = in_place ? in.as<float>() + begin : out.as<float>();
        group.reduce_scatter(to, in.data(), count, DataType::float32, ReduceOp::sum,
                             caller(Operation::reduce_scatter, count));
        EXPECT_EQ(first_wrong(to, count, [&](auto i) { return sum_at(world, begin + i); }), count);
      }
    }
  });
}

TEST_P(ShmCollectivesTest, AllToAllOfUnevenParts) {
  const auto [world, shared] = GetParam();
  run_threads(world, [&, world = world, shared = shared](ByteCollectives& group, int rank) {
    const auto part = [](int from, int to, std::size_t scale) {
      return static_cast<std::size_t>((from * 3 + to) % 4) * scale;
    };
    Caller caller;
    for (const std::size_t scale : {0UL, 1UL, 300UL, 60'000UL}) {
      std::vector<std::size_t> in_bytes;
      std::vector<std::size_t> out_bytes;
      std::size_t in_count = 0;
      std::size_t out_count = 0;
      for (int peer = 0; peer < world; ++peer) {
        in_bytes.push_back(part(rank, peer, scale) * sizeof(float));
        out_bytes.push_back(part(peer, rank, scale) * sizeof(float));
        in_count += in_bytes.back() / sizeof(float);
        out_count += out_bytes.back() / sizeof(float);
      }
      const Buffer in(group, 8 * 3 * scale * sizeof(float), shared);
      const Buffer out(group, 8 * 3 * scale * sizeof(float), shared);
      float* next = in.as<float>();
      for (int peer = 0; peer < world; ++peer) {
        const auto count = part(rank, peer, scale);
        fill(next, rank, count, static_cast<std::size_t>(peer));
        next += count;
      }
      group.all_to_all(out.data(), in.data(), out_bytes, in_bytes, caller(Operation::all_to_all, in_count));
      const float* from = out.as<float>();
      for (int peer = 0; peer < world; ++peer) {
        const auto count = part(peer, rank, scale);
        EXPECT_EQ(first_wrong(from, count,
                              [&](auto i) { return value_at(peer, i + static_cast<std::size_t>(rank)); }),
                  count);
        from += count;
      }
    }
  });
}

TEST_P(ShmCollectivesTest, ManyCallsOfAllSizesInARow) {
  const auto [world, shared] = GetParam();
  run_threads(world, [&, world = world, shared = shared](ByteCollectives& group, int rank) {
    const Buffer buffer(group, 200'000 * sizeof(float), shared);
    Caller caller;
    std::size_t count = 1;
    for (int round = 0; round < 60; ++round) {
      count = (count * 7919 + 13) % 200'000;
      fill(buffer.as<float>(), rank, count);
      group.all_reduce(buffer.data(), count, DataType::float32, ReduceOp::sum,
                       caller(Operation::all_reduce, count));
      ASSERT_EQ(first_wrong(buffer.as<float>(), count, [&](auto i) { return sum_at(world, i); }), count);
      const int root = round % world;
      group.broadcast(buffer.data(), count / 2, root,
                      caller(Operation::broadcast, count / 2, DataType::uint8, root));
    }
  });
}

TEST(ShmMailTest, MessagesGoBesideEachOtherAndBesideCollectives) {
  run_threads(3, [](ByteCollectives& group, int rank) {
    constexpr int kTags = 6;
    const auto talk = [&](int tag) {
      for (const std::size_t count : {0UL, 1UL, 5000UL, 100'000UL}) {
        ByteCall call{{}, soon()};
        call.signature.count = static_cast<std::int64_t>(count);
        std::vector<float> data(count);
        if (rank == 0) {
          fill(data.data(), tag, count);
          group.send(data.data(), count * sizeof(float), 2, tag, call);
        } else if (rank == 2) {
          group.recv(data.data(), count * sizeof(float), 0, tag, call);
          EXPECT_EQ(first_wrong(data.data(), count, [&](auto i) { return value_at(tag, i); }), count);
        }
      }
    };
    std::vector<std::thread> threads;
    for (int tag = 0; tag < kTags; ++tag) threads.emplace_back(talk, tag);
    Caller caller;
    for (int i = 0; i < 100; ++i) group.barrier(caller(Operation::barrier, 0));
    for (auto& thread : threads) thread.join();
  });
}

TEST(ShmMailTest, SizesThatDifferAreAnErrorOnBothSides) {
  run_threads(2, [](ByteCollectives& group, int rank) {
    std::vector<float> data(10);
    ByteCall call{{}, soon()};
    call.signature.count = rank == 0 ? 10 : 9;
    try {
      if (rank == 0) {
        group.send(data.data(), 40, 1, 0, call);
      } else {
        group.recv(data.data(), 36, 0, 0, call);
      }
      ADD_FAILURE() << "nothing thrown";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::disagree);
      EXPECT_THAT(error.ranks(), ElementsAre(1 - rank));
    }
  });
}

/** What the call throws. */
template <typename Call>
PeerError error_of(Call call) {
  try {
    call();
  } catch (const PeerError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing thrown";
  return {ErrorKind::training, "nothing"};
}

TEST(ShmFailureTest, DisagreementIsSaidOnAllRanksAndStays) {
  for (const std::size_t count : {3UL, 100'000UL}) {
    run_threads(3, [count](ByteCollectives& group, int rank) {
      Caller caller;
      const std::size_t mine = rank == 1 ? count + 1 : count;
      std::vector<float> data(mine);
      const auto call = [&] {
        group.all_reduce(data.data(), mine, DataType::float32, ReduceOp::sum,
                         caller(Operation::all_reduce, mine));
      };
      const auto error = error_of(call);
      EXPECT_EQ(error.kind(), ErrorKind::disagree);
      EXPECT_THAT(error.ranks(), ElementsAre(rank == 1 ? 0 : 1));
      EXPECT_THAT(error.what(), HasSubstr("[" + std::to_string(count + 1) + "]"));
      EXPECT_EQ(error_of(call).kind(), ErrorKind::disagree);
    });
  }
}

TEST(ShmFailureTest, ADeadlineOfTenMillisecondsHoldsAndNamesWhoIsMissing) {
  run_threads(3, [](ByteCollectives& group, int rank) {
    Caller caller;
    group.barrier(caller(Operation::barrier, 0));
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(300));
      return;
    }
    auto call = caller(Operation::barrier, 0);
    call.deadline = Deadline::after(milliseconds(10));
    const auto begin = Clock::now();
    const auto error = error_of([&] { group.barrier(call); });
    EXPECT_LT(Clock::now() - begin, milliseconds(200));
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_THAT(error.ranks(), Contains(2));  // the third rank may be late too on a busy machine
    std::this_thread::sleep_for(milliseconds(200));
  });
}

TEST(ShmFailureTest, AbortWakesThisRankAndThePeers) {
  run_threads(3, [](ByteCollectives& group, int rank) {
    Caller caller;
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(500));
      return;
    }
    std::thread aborter([&] {
      std::this_thread::sleep_for(milliseconds(50));
      EXPECT_THAT(group.missing(), ElementsAre(2));
      if (rank == 0) group.abort("enough");
    });
    const auto begin = Clock::now();
    const auto error = error_of([&] { group.barrier(caller(Operation::barrier, 0)); });
    EXPECT_LT(Clock::now() - begin, milliseconds(300));
    EXPECT_EQ(error.kind(), ErrorKind::lost);
    EXPECT_THAT(error.what(), HasSubstr(rank == 0 ? "enough" : "rank 0 aborted"));
    aborter.join();
  });
}

TEST(ShmFailureTest, ARankThatLeavesIsNamed) {
  run_threads(3, [](ByteCollectives& group, int rank) {
    if (rank == 1) return;
    Caller caller;
    const auto error = error_of([&] { group.barrier(caller(Operation::barrier, 0)); });
    EXPECT_EQ(error.kind(), ErrorKind::lost);
    EXPECT_THAT(error.ranks(), ElementsAre(1));
  });
}

TEST(ShmFailureTest, MemoryThatIsNotThereIsAnErrorEverywhere) {
  run_threads(2, [](ByteCollectives& group, int) {
    try {
      group.allocate(std::size_t{1} << 44, soon());
      ADD_FAILURE() << "16 TiB found";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::os_resource);
      EXPECT_THAT(error.what(), HasSubstr("no shared memory"));
    }
  });
}

TEST(ShmConnectTest, RanksThatDoNotComeAreNamed) {
  MemoryStore store;
  const auto error = error_of([&] { connect_shm(store, 0, 3, Deadline::after(milliseconds(10))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_THAT(error.ranks(), ElementsAre(1, 2));
}

TEST(ShmConnectTest, ARankOfAnotherHostIsRefused) {
  MemoryStore store;
  store.set("shm/host/1", "another-boot/net:[1] far-away");
  for (const int rank : {0, 2}) {
    store.set("shm/host/2", locality() + " here");
    try {
      connect_shm(store, rank, 3, soon());
      ADD_FAILURE() << "connected";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::spec);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 (far-away) is not on the host of rank 0"));
    }
  }
}

TEST(ShmConnectTest, MemoryMayOutliveTheGroup) {
  run_threads(2, [](ByteCollectives& group, int) {
    const auto memory = group.allocate(10'000, soon());
    EXPECT_EQ(static_cast<char*>(memory.get())[9'999], 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 4096, 0U);
  });
}

TEST(ShmConnectTest, CommonMemoryIsTheSameOnAllRanks) {
  static constexpr std::size_t kBytes = 100'001;
  run_threads(3, [](ByteCollectives& group, int rank) {
    Caller caller;
    const auto memory = group.allocate_common(kBytes, soon());
    auto* bytes = static_cast<char*>(memory.get());
    EXPECT_EQ(std::count(bytes, bytes + kBytes, 0), static_cast<std::ptrdiff_t>(kBytes));
    group.barrier(caller(Operation::barrier, 0));
    for (std::size_t i = static_cast<std::size_t>(rank); i < kBytes; i += 3)
      bytes[i] = static_cast<char>('a' + rank);
    group.barrier(caller(Operation::barrier, 0));
    std::string expected;
    for (std::size_t i = 0; i < kBytes; ++i) expected += static_cast<char>('a' + i % 3);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), bytes));
  });
}

}  // namespace
}  // namespace dtorch::shm
