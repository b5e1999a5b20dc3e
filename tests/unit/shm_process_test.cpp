// The shared-memory engine with ranks as processes that are killed and stopped.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "backends/shm/engine/engine.h"
#include "core/bytes/peer_error.h"
#include "tests/unit/plain_stores.h"

namespace dtorch::shm {
namespace {

using std::chrono::milliseconds;

constexpr int kWorld = 3;

std::set<std::string> shared_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path());
  return names;
}

/** Processes that do one collective after the other until one fails; they end with 0 if it is as expected. */
class Ranks {
 public:
  template <typename Expected>
  Ranks(std::chrono::nanoseconds patience, Expected expected) {
    std::string name = std::filesystem::temp_directory_path() / "shm_process_XXXXXX";
    folder_ = ::mkdtemp(name.data());
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    for (int rank = 0; rank < kWorld; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::_exit(be_rank(rank, ready[1], patience, expected));
      }
      pids_.push_back(pid);
    }
    ::close(ready[1]);
    char byte = 0;
    for (int rank = 0; rank < kWorld; ++rank) EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "no rank is ready";
    ::close(ready[0]);
  }
  ~Ranks() {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  void signal(int rank, int number) { ::kill(pids_[static_cast<std::size_t>(rank)], number); }
  /** The status of a rank that ends by itself; -1 if it does not. */
  int wait(int rank, Deadline deadline) {
    pid_t& pid = pids_[static_cast<std::size_t>(rank)];
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      if (deadline.expired()) return -1;
      std::this_thread::sleep_for(milliseconds(1));
    }
    pid = -1;
    return status;
  }

 private:
  template <typename Expected>
  int be_rank(int rank, int ready, std::chrono::nanoseconds patience, Expected expected) {
    try {
      FolderStore store(folder_);
      const auto group = connect_shm(store, rank, kWorld, Deadline::after(std::chrono::seconds(30)));
      std::mt19937 random(7);  // the same sizes on all ranks
      std::vector<float> own(100'000);
      const auto shared =
          group->allocate(own.size() * sizeof(float), Deadline::after(std::chrono::seconds(30)));
      ByteCall call{{}, Deadline(Clock::time_point::max())};
      for (call.signature.sequence = 1;; ++call.signature.sequence) {
        call.deadline = Deadline::after(patience);
        const std::size_t count = random() % own.size() >> random() % 16;
        void* data = random() % 2 == 0 ? own.data() : shared.get();
        call.signature.count = static_cast<std::int64_t>(count);
        group->all_reduce(data, count, DataType::float32, ReduceOp::max, call);
        if (call.signature.sequence == 1 && ::write(ready, "", 1) != 1) return 3;
      }
    } catch (const PeerError& error) {
      return expected(error) ? 0 : 1;
    } catch (...) {
      return 2;
    }
  }

  std::filesystem::path folder_;
  std::vector<pid_t> pids_;
};

/** More with DTORCH_KILLS=1000. */
int kills() {
  const char* wanted = std::getenv("DTORCH_KILLS");
  return wanted != nullptr ? std::atoi(wanted) : 20;
}

TEST(ShmProcessTest, AKilledRankIsNamedWithinASecondAndLeavesNothing) {
  const auto before = shared_names();
  std::mt19937 random(11);
  for (int round = 0; round < kills(); ++round) {
    const int victim = static_cast<int>(random() % kWorld);
    Ranks ranks(std::chrono::seconds(20), [victim](const PeerError& error) {
      return error.kind() == ErrorKind::lost && error.ranks() == std::vector{victim};
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    ranks.signal(victim, SIGKILL);
    const auto deadline = Deadline::after(std::chrono::seconds(1));
    for (int rank = 0; rank < kWorld; ++rank) {
      if (rank == victim) continue;
      ASSERT_EQ(ranks.wait(rank, deadline), 0) << "round " << round << ", rank " << rank;
    }
  }
  EXPECT_EQ(shared_names(), before);
}

TEST(ShmProcessTest, AStoppedRankIsATimeoutThatNamesIt) {
  Ranks ranks(milliseconds(300), [](const PeerError& error) {
    return error.kind() == ErrorKind::timeout && error.ranks() == std::vector{1};
  });
  ranks.signal(1, SIGSTOP);
  const auto deadline = Deadline::after(std::chrono::seconds(5));
  EXPECT_EQ(ranks.wait(0, deadline), 0);
}

}  // namespace
}  // namespace dtorch::shm
