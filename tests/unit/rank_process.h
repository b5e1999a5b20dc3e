// Tests with several ranks, each a real process: the test program starts itself again, once a rank.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "backends/registry/registry.h"
#include "core/base/fd.h"
#include "core/comm/process_group.h"

namespace dtorch::testing {

struct RankOptions {
  std::string backend = "gloo";
  ProcessGroupOptions group{.name = "test",
                            .timeout = std::chrono::seconds(30),
                            .init_timeout = std::chrono::seconds(30),
                            .interface = {}};
  std::chrono::seconds limit{60};  ///< for all ranks together; what is left then is killed and the test fails
};

namespace detail {

inline constexpr const char* kRank = "DTORCH_TEST_RANK";
inline constexpr const char* kPort = "DTORCH_TEST_PORT";
inline constexpr const char* kCall = "DTORCH_TEST_CALL";

struct RankProcess {
  pid_t pid = -1;
  Fd output;
};

/** This test again, as the given rank; what it prints goes to a file in memory. */
inline RankProcess start_rank(int rank, int port, int call) {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto filter = std::string("--gtest_filter=") + info->test_suite_name() + "." + info->name();
  std::vector<std::string> settings{std::string(kRank) + "=" + std::to_string(rank),
                                    std::string(kPort) + "=" + std::to_string(port),
                                    std::string(kCall) + "=" + std::to_string(call), "OMP_NUM_THREADS=1"};
  std::vector<char*> environment;
  for (auto& setting : settings) environment.push_back(setting.data());
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe";
  auto filter_argument = filter;
  char* arguments[] = {program.data(), filter_argument.data(), nullptr};
  RankProcess process{-1, Fd(memfd_create("rank", MFD_CLOEXEC))};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, process.output.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, process.output.get(), STDERR_FILENO);
  const int error =
      posix_spawn(&process.pid, program.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0) << "posix_spawn";
  return process;
}

inline std::string printed(const RankProcess& process) {
  std::string text(static_cast<std::size_t>(lseek(process.output.get(), 0, SEEK_END)), '\0');
  const auto size = pread(process.output.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return text;
}

/** The exit status; kills the process at the deadline. */
inline int wait_rank(const RankProcess& process, Deadline deadline) {
  int status = 0;
  while (waitpid(process.pid, &status, WNOHANG) == 0) {
    if (deadline.expired()) {
      kill(process.pid, SIGKILL);
      waitpid(process.pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status;
}

using Body = std::function<void(const ProcessGroupPtr&)>;

/** In a rank's process: the body, then the end. */
[[noreturn]] inline void be_rank(int rank, int world_size, const RankOptions& options, const Body& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  at::set_num_threads(1);
  try {
    c10d::TCPStoreOptions store_options;
    store_options.port = static_cast<std::uint16_t>(std::atoi(std::getenv(kPort)));
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store_options);
    body(std::make_shared<ProcessGroup>(find_backend(options.backend), store, rank, world_size,
                                        options.group));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
  }
  std::fflush(nullptr);
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace detail

/**
 * Runs the body in `world_size` processes, each with a group of all of them, and fails the calling test
 * unless every one ends with status 0 and without failed expectations. To be called from a TEST's own thread,
 * any number of times.
 */
inline void run_ranks(int world_size, const detail::Body& body, const RankOptions& options = {}) {
  static std::map<std::string, int> calls;  // a rank runs this test only: counted by test
  const int call = calls[::testing::UnitTest::GetInstance()->current_test_info()->name()]++;
  if (const char* rank = std::getenv(detail::kRank)) {
    if (std::atoi(std::getenv(detail::kCall)) != call) return;
    detail::be_rank(std::atoi(rank), world_size, options, body);
  }
  c10d::TCPStoreOptions store_options;
  store_options.port = 0;
  store_options.isServer = true;
  store_options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store_options);
  std::vector<detail::RankProcess> ranks;
  for (int rank = 0; rank < world_size; ++rank)
    ranks.push_back(detail::start_rank(rank, store->getPort(), call));
  const auto deadline = Deadline::after(options.limit);
  for (int rank = 0; rank < world_size; ++rank) {
    const int status = detail::wait_rank(ranks[static_cast<std::size_t>(rank)], deadline);
    EXPECT_EQ(status, 0) << "rank " << rank << " of " << world_size << ":\n"
                         << detail::printed(ranks[static_cast<std::size_t>(rank)]);
  }
}

}  // namespace dtorch::testing
