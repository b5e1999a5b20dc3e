// What the tcp transport does when ranks disagree, die, stop, or when strangers talk to it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "core/base/fd.h"
#include "tests/unit/tcp_ranks.h"

namespace dtorch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void sum(ByteCollectives& group, std::vector<float>& data, std::uint64_t sequence,
         Deadline deadline = soon()) {
  auto call = call_of(Operation::all_reduce, sequence, data.size(), DataType::float32, -1, deadline);
  call.signature.reduce = static_cast<std::int8_t>(ReduceOp::sum);
  group.all_reduce(data.data(), data.size(), DataType::float32, ReduceOp::sum, call);
}

void expect_all_disagree(int world, const RankBody& body) {
  for (const auto& error : outcomes(world, body)) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::disagree) << error->what();
    EXPECT_THAT(error->what(), HasSubstr("ranks call different collectives"));
  }
}

TEST(TcpFaultsTest, DisagreementsReachEveryRank) {
  for (const int world : {2, 3, 5}) {
    for (const std::size_t count : {std::size_t{5}, std::size_t{500'000}}) {
      // Another size.
      expect_all_disagree(world, [&](ByteCollectives& group, int rank) {
        std::vector<float> data(rank == 1 ? count + 1 : count);
        sum(group, data, 1);
        group.barrier(call_of(Operation::barrier, 2, 0));
      });
      // Another operation, each waiting for the other.
      expect_all_disagree(world, [&](ByteCollectives& group, int rank) {
        std::vector<float> data(count);
        if (rank == 1) {
          group.broadcast(data.data(), count * sizeof(float), 0,
                          call_of(Operation::broadcast, 1, count, DataType::float32, 0));
        } else {
          group.gather(
              rank == 0 ? std::vector<float>(count * static_cast<std::size_t>(world)).data() : nullptr,
              data.data(), count * sizeof(float), 0,
              call_of(Operation::gather, 1, count, DataType::float32, 0));
        }
        group.barrier(call_of(Operation::barrier, 2, 0));
      });
      // Another order.
      expect_all_disagree(world, [&](ByteCollectives& group, int rank) {
        std::vector<float> data(count);
        if (rank == 0) group.barrier(call_of(Operation::barrier, 1, 0));
        sum(group, data, rank == 0 ? 2 : 1);
        if (rank != 0) group.barrier(call_of(Operation::barrier, 2, 0));
      });
    }
  }
}

TEST(TcpFaultsTest, DataOfADisagreeingRankIsNotUsed) {
  outcomes(2, [&](ByteCollectives& group, int rank) {
    std::vector<std::int32_t> data(1000, rank == 0 ? 7 : 8);
    const auto type = rank == 0 ? DataType::int32 : DataType::float32;
    EXPECT_THROW(group.broadcast(data.data(), 4000, 0, call_of(Operation::broadcast, 1, 1000, type, 0));
                 group.barrier(call_of(Operation::barrier, 2, 0)), PeerError);
    EXPECT_THAT(data, ::testing::Each(rank == 0 ? 7 : 8));
  });
}

TEST(TcpFaultsTest, ASendAndItsRecvMustFit) {
  const auto errors = outcomes(2, [&](ByteCollectives& group, int rank) {
    std::vector<float> data(11);
    if (rank == 0) group.send(data.data(), 40, 1, 3, call_of(Operation::send, 0, 10));
    if (rank == 1) group.recv(data.data(), 44, 0, 3, call_of(Operation::recv, 0, 11));
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::disagree) << error->what();
  }
}

TEST(TcpFaultsTest, AShortDeadlineNamesWhoDidNotCome) {
  std::atomic<bool> done{false};
  const auto errors = outcomes(3, [&](ByteCollectives& group, int rank) {
    std::vector<float> data(10);
    sum(group, data, 1);
    if (rank == 2) {
      while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    if (rank == 1) {
      sum(group, data, 2);  // is told by rank 0
      return;
    }
    const auto begin = Clock::now();
    EXPECT_THROW(sum(group, data, 2, Deadline::after(std::chrono::milliseconds(10))), PeerError);
    EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(500));
    EXPECT_TRUE(group.missing().empty());
    done = true;
    sum(group, data, 3);  // a failed group stays failed, with the first reason
  });
  for (const int rank : {0, 1}) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::timeout) << error->what();
  }
  EXPECT_THAT(errors[0]->what(), HasSubstr("rank "));
  EXPECT_THAT(errors[0]->ranks(), ::testing::Contains(2));
}

TEST(TcpFaultsTest, MissingTellsWhoIsAwaited) {
  std::atomic<bool> seen{false};
  run_ranks(2, [&](ByteCollectives& group, int rank) {
    if (rank == 1) {
      while (!seen) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      group.barrier(call_of(Operation::barrier, 1, 0));
      return;
    }
    std::thread watcher([&] {
      while (group.missing() != std::vector<int>{1})
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      seen = true;
    });
    group.barrier(call_of(Operation::barrier, 1, 0));
    watcher.join();
  });
}

TEST(TcpFaultsTest, AbortWakesOwnWaitersAndPeers) {
  std::atomic<int> waiting{0};
  const auto errors = outcomes(3, [&](ByteCollectives& group, int rank) {
    std::vector<float> data(10);
    if (rank == 2) {
      while (waiting < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      group.abort("the test says so");
      return;
    }
    ++waiting;
    const auto begin = Clock::now();
    if (rank == 1) {
      std::thread receiver([&] {
        EXPECT_THROW(group.recv(data.data(), 40, 0, 0, call_of(Operation::recv, 0, 10)), PeerError);
      });
      receiver.join();
    }
    try {
      sum(group, data, 1);
    } catch (const PeerError&) {
      EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));
      throw;
    }
  });
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_EQ(errors[0]->kind(), ErrorKind::lost);
  EXPECT_THAT(errors[0]->what(), HasSubstr("the test says so"));
}

TEST(TcpFaultsTest, AbortOfTheOwnGroupWakesACollective) {
  const auto errors = outcomes(2, [&](ByteCollectives& group, int rank) {
    std::vector<float> data(10);
    if (rank == 1) {
      sum(group, data, 1);
      return;
    }
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      group.abort("enough");
      group.abort("again");
    });
    EXPECT_THROW(group.recv(data.data(), 40, 1, 0, call_of(Operation::recv, 0, 10)), PeerError);
    other.join();
    sum(group, data, 1);
  });
  ASSERT_TRUE(errors[0] && errors[1]);
  EXPECT_STREQ(errors[0]->what(), "enough");
  EXPECT_EQ(errors[1]->kind(), ErrorKind::lost);
  EXPECT_THAT(errors[1]->ranks(), ElementsAre(0));
}

TEST(TcpFaultsTest, ARecvEndsWhenAThirdRankIsLost) {
  std::atomic<bool> done{false};
  const auto errors = outcomes(3, [&](ByteCollectives& group, int rank) {
    float value = 0;
    if (rank == 2) group.abort("gone");
    while (rank == 1 && !done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (rank != 0) return;
    try {
      group.recv(&value, 4, 1, 0, call_of(Operation::recv, 0, 1));
    } catch (const PeerError&) {
      done = true;
      throw;
    }
  });
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_THAT(errors[0]->ranks(), ElementsAre(2));
}

TEST(TcpFaultsTest, WhoHasLeftInPeaceIsNotMissed) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = connect_tcp(store, rank, 3, "127.0.0.1", soon());
      int value = rank;
      if (rank != 2) {
        group->broadcast(&value, sizeof value, 0, call_of(Operation::broadcast, 1, 1, DataType::int32, 0));
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        group->broadcast(&value, sizeof value, 0, call_of(Operation::broadcast, 1, 1, DataType::int32, 0));
      }
      EXPECT_EQ(value, 0);
    });
  }
  for (auto& thread : threads) thread.join();
}

Fd connect_to(const std::string& endpoint) {
  const auto space = endpoint.find(' ');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(space + 1))));
  ::inet_pton(AF_INET, endpoint.substr(0, space).c_str(), &address.sin_addr);
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  return fd;
}

TEST(TcpFaultsTest, StrangersAreTurnedAway) {
  MemoryStore store;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    auto group = connect_tcp(store, 0, 2, "127.0.0.1", soon());
    std::vector<float> data(1000, 1.0F);
    sum(*group, data, 1);
    EXPECT_EQ(data[999], 2.0F);
  });
  const auto endpoint = store.get("tcp/rank/0", soon());
  std::vector<Fd> strangers;
  for (int i = 0; i < 10; ++i) {
    strangers.push_back(connect_to(endpoint));
    ASSERT_TRUE(strangers.back().valid());
    const std::string garbage(i % 2 == 0 ? 5 : 5000, static_cast<char>('a' + i));
    ::send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  threads.emplace_back([&] {
    auto group = connect_tcp(store, 1, 2, "127.0.0.1", soon());
    std::vector<float> data(1000, 1.0F);
    sum(*group, data, 1);
    EXPECT_FALSE(connect_to(endpoint).valid());  // nobody listens any more
  });
  for (auto& thread : threads) thread.join();
}

TEST(TcpFaultsTest, RanksThatNeverCameAreNamed) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      try {
        connect_tcp(store, rank, 4, "127.0.0.1", Deadline::after(std::chrono::milliseconds(100)));
        ADD_FAILURE();
      } catch (const PeerError& error) {
        EXPECT_EQ(error.kind(), ErrorKind::timeout);
        EXPECT_THAT(error.ranks(), ElementsAre(1, 3));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(TcpFaultsTest, AnAddressOfAnotherMachineIsRefused) {
  MemoryStore store;
  EXPECT_THROW(connect_tcp(store, 0, 1, "192.0.2.1", soon()), Error);
  EXPECT_THROW(connect_tcp(store, 0, 1, "nonsense", soon()), Error);
}

/** Lets this process open so many more descriptors while it lives. */
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    auto few = before_;
    few.rlim_cur = static_cast<rlim_t>(Fd(::dup(STDERR_FILENO)).get() + more);
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

// Two ranks listen, one connects, the other accepts: each in turn finds no descriptor.
TEST(TcpFaultsTest, ALackOfDescriptorsIsSaidAndNotWaitedFor) {
  for (const int more : {2, 3}) {
    const FewDescriptors few(more);
    MemoryStore store;
    std::atomic<int> said{0};
    std::vector<std::thread> threads;
    for (const int rank : {0, 1}) {
      threads.emplace_back([&, rank] {
        try {
          connect_tcp(store, rank, 2, "127.0.0.1", Deadline::after(std::chrono::seconds(3)));
          ADD_FAILURE() << "connected";
        } catch (const Error& error) {
          if (error.kind() == ErrorKind::os_resource) ++said;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(said, 1) << "with " << more << " descriptors";
  }
}

/** Ranks that are processes, so that they can be killed and stopped. */
class TcpProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "tcp_ranks_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /** All-reduces of growing sizes until it fails; the exit status tells how: 0 as `expected`, naming `victim`. */
  static int reduce_until_failure(const std::filesystem::path& folder, int rank, int world,
                                  ErrorKind expected, int victim, std::chrono::milliseconds patience) {
    try {
      FolderStore store(folder);
      auto group = connect_tcp(store, rank, world, "127.0.0.1", soon());
      std::ofstream(folder / ("up" + std::to_string(rank))) << "up";
      std::vector<float> data;
      for (std::uint64_t i = 1;; ++i) {
        data.assign(std::size_t{1} << (i % 20), 1.0F);
        sum(*group, data, i, Deadline::after(patience));
      }
    } catch (const PeerError& error) {
      if (error.kind() == expected && error.ranks() == std::vector<int>{victim}) return 0;
      std::cerr << "rank " << rank << ": " << error.what() << "\n";
      return 3;
    } catch (const std::exception& error) {
      std::cerr << "rank " << rank << ": " << error.what() << "\n";
      return 4;
    }
  }

  std::vector<pid_t> start(int world, ErrorKind expected, int victim, std::chrono::milliseconds patience) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < world; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(reduce_until_failure(folder_, rank, world, expected, victim, patience));
      children.push_back(child);
    }
    for (int rank = 0; rank < world; ++rank) {
      while (!std::filesystem::exists(folder_ / ("up" + std::to_string(rank))))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return children;
  }

  std::filesystem::path folder_;
};

TEST_F(TcpProcessesTest, SurvivorsOfAKilledRankEndWithinASecond) {
  std::mt19937 random(7);
  constexpr int kWorld = 3;
  for (int round = 0; round < 10; ++round) {
    const int victim = round % kWorld;
    const auto children = start(kWorld, ErrorKind::lost, victim, std::chrono::seconds(20));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    ::kill(children[static_cast<std::size_t>(victim)], SIGKILL);
    const auto begin = Clock::now();
    for (int rank = 0; rank < kWorld; ++rank) {
      int status = 0;
      ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
      if (rank != victim) {
        EXPECT_EQ(status, 0) << "round " << round << ", rank " << rank;
      }
    }
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));  // half of it for a busy machine
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) std::filesystem::remove(entry);
  }
}

TEST_F(TcpProcessesTest, AStoppedRankIsNamedAtTheDeadline) {
  const auto children = start(2, ErrorKind::timeout, 1, std::chrono::milliseconds(300));
  ::kill(children[1], SIGSTOP);
  int status = 0;
  ::waitpid(children[0], &status, 0);
  EXPECT_EQ(status, 0);
  ::kill(children[1], SIGKILL);
  ::waitpid(children[1], &status, 0);
}

}  // namespace
}  // namespace dtorch
