// The parts of a process group that need no tensors: the queue of operations, reductions, signatures, stacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <thread>

#include "core/bytes/reduce_kernels.h"
#include "core/bytes/signature.h"
#include "core/comm/stack.h"
#include "core/comm/work_queue.h"

namespace dtorch {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/** A door that jobs wait at. */
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST(WorkQueueTest, RunsInOrder) {
  WorkQueue queue;
  std::vector<int> order;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 100; ++i) works.push_back(queue.push([&order, i](Progress&) { order.push_back(i); }));
  works.back()->wait();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(WorkQueueTest, WaitEndsAtItsDeadlineAndNamesWhoIsWaitedFor) {
  Gate gate;
  Gate begun;
  WorkQueue queue;
  const auto work = queue.push([&](Progress& progress) {
    progress.expect({1, 2, 3});
    progress.arrived(2);
    begun.open();
    gate.pass();
  });
  begun.pass();
  EXPECT_FALSE(work->is_completed());
  try {
    work->wait(Deadline::after(milliseconds(10)));
    ADD_FAILURE() << "no timeout";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_THAT(error.ranks(), ElementsAre(1, 3));
  }
  gate.open();
  work->wait();
  EXPECT_TRUE(work->is_completed());
}

TEST(WorkQueueTest, AFailedOperationFailsAllLaterOnes) {
  WorkQueue queue;
  bool ran = false;
  const auto first = queue.push([](Progress&) { throw Error(ErrorKind::lost, "first"); });
  const auto second = queue.push([&ran](Progress&) { ran = true; });
  for (const auto& work : {first, second, queue.push([&ran](Progress&) { ran = true; })}) {
    try {
      work->wait();
      ADD_FAILURE() << "nothing thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "first");
    }
  }
  EXPECT_FALSE(ran);
}

TEST(WorkQueueTest, TellsWhomAnOperationWaitsForBeforeItBegins) {
  Gate gate;
  WorkQueue queue;
  queue.push([&gate](Progress&) { gate.pass(); });
  const auto waiting = queue.push([](Progress&) {}, {3});
  EXPECT_THAT(waiting->waiting_for(), ElementsAre(3));
  gate.open();
  waiting->wait();
}

TEST(WorkQueueTest, IsIdleOnceItsWorkIsComplete) {
  WorkQueue queue;
  for (int i = 0; i < 1000; ++i) {
    queue.push([](Progress&) {})->wait();
    ASSERT_TRUE(queue.idle());
  }
}

TEST(WorkQueueTest, FailLeavesTheOperationUnderWayAlone) {
  Gate gate;
  Gate begun;
  WorkQueue queue;
  const auto under_way = queue.push([&](Progress&) {
    begun.open();
    gate.pass();
  });
  const auto waiting = queue.push([](Progress&) {});
  begun.pass();
  queue.fail(std::make_exception_ptr(Error(ErrorKind::lost, "aborted")));
  gate.open();
  EXPECT_NO_THROW(under_way->wait());
  EXPECT_THROW(waiting->wait(), Error);
}

TEST(WorkQueueTest, ReleasesWhatAJobOwnsBeforeItsWorkCompletes) {
  WorkQueue queue;
  const auto owned = std::make_shared<int>(1);
  const auto work = queue.push([owned](Progress&) {});
  work->wait();
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(WorkQueueTest, WaitersCheckUpOnOperationsThatTakeLong) {
  Gate gate;
  WorkQueue queue([&gate] { gate.open(); });
  const auto work = queue.push([&gate](Progress&) { gate.pass(); });
  work->wait(Deadline::after(std::chrono::seconds(20)));
  EXPECT_TRUE(work->is_completed());
}

/** Exits with 0 if this thread lives on after an operation has written to a pipe that nobody reads. */
[[noreturn]] void write_to_who_is_gone() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) std::_Exit(1);
  ::close(ends[0]);
  int error = 0;
  {
    WorkQueue queue;
    queue.push([&](Progress&) { error = ::write(ends[1], "x", 1) < 0 ? errno : 0; })->wait();
  }  // its thread ends
  std::_Exit(error == EPIPE ? 0 : 2);
}

TEST(WorkQueueTest, AnOperationThatWritesToWhoIsGoneDoesNotEndTheProcess) {
  EXPECT_EXIT(write_to_who_is_gone(), ::testing::ExitedWithCode(0), "");
}

template <typename T>
T reduce_two(DataType type, ReduceOp op, T a, T b) {
  T out{};
  const std::array<const void*, 2> parts{&a, &b};
  reduce_parts(&out, parts, 1, type, op);
  return out;
}

TEST(ReduceKernelsTest, MinAndMaxCarryNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto op : {ReduceOp::min, ReduceOp::max}) {
    EXPECT_TRUE(std::isnan(reduce_two(DataType::float32, op, nan, 1.0F)));
    EXPECT_TRUE(std::isnan(reduce_two(DataType::float32, op, 1.0F, nan)));
  }
  EXPECT_EQ(reduce_two(DataType::float64, ReduceOp::min, 2.0, -3.0), -3.0);
}

TEST(ReduceKernelsTest, IntegersWrap) {
  EXPECT_EQ(reduce_two<std::int8_t>(DataType::int8, ReduceOp::sum, 127, 1), -128);
  EXPECT_EQ(reduce_two<std::uint8_t>(DataType::uint8, ReduceOp::product, 16, 17), 16);
  EXPECT_EQ(reduce_two<std::int32_t>(DataType::int32, ReduceOp::product, 65536, 65536), 0);
  EXPECT_EQ(
      reduce_two<std::int64_t>(DataType::int64, ReduceOp::sum, std::numeric_limits<std::int64_t>::max(), 1),
      std::numeric_limits<std::int64_t>::min());
}

TEST(ReduceKernelsTest, BoolsStayZeroOrOne) {
  for (const std::uint8_t a : {0, 1}) {
    for (const std::uint8_t b : {0, 1}) {
      EXPECT_EQ(reduce_two<std::uint8_t>(DataType::boolean, ReduceOp::sum, a, b), a | b);
      EXPECT_EQ(reduce_two<std::uint8_t>(DataType::boolean, ReduceOp::product, a, b), a & b);
      EXPECT_EQ(reduce_two<std::uint8_t>(DataType::boolean, ReduceOp::bxor, a, b), a ^ b);
    }
  }
}

TEST(ReduceKernelsTest, WhatDoesNotExistIsNull) {
  EXPECT_EQ(reduce_kernel(DataType::float32, ReduceOp::band), nullptr);
  EXPECT_EQ(reduce_kernel(DataType::boolean, ReduceOp::avg), nullptr);
}

CallSignature all_reduce_of(std::int64_t count) {
  CallSignature signature;
  signature.sequence = 3;
  signature.operation = Operation::all_reduce;
  signature.reduce = static_cast<std::int8_t>(ReduceOp::sum);
  signature.dtype = 6;  // at::kFloat
  signature.count = count;
  return signature;
}

TEST(SignatureTest, DescribesCallsAsUsersWriteThem) {
  EXPECT_EQ(describe(all_reduce_of(65537)), "all_reduce sum float32[65537]");
  EXPECT_EQ(describe(CallSignature{}), "barrier");
}

TEST(SignatureTest, DescribesGarbageFromAPeerWithoutHarm) {
  CallSignature garbage;
  garbage.operation = static_cast<Operation>(200);
  garbage.reduce = 100;
  garbage.dtype = 99;
  EXPECT_EQ(describe(garbage), "unknown unknown unknown[0]");
}

TEST(SignatureTest, EveryFieldMustAgree) {
  const auto mine = all_reduce_of(10);
  EXPECT_TRUE(agree(mine, mine));
  const auto differs = [&](auto change) {
    auto theirs = mine;
    change(theirs);
    return !agree(mine, theirs);
  };
  EXPECT_TRUE(differs([](auto& other) { other.sequence = 4; }));
  EXPECT_TRUE(differs([](auto& other) { other.operation = Operation::reduce; }));
  EXPECT_TRUE(differs([](auto& other) { other.reduce = static_cast<std::int8_t>(ReduceOp::max); }));
  EXPECT_TRUE(differs([](auto& other) { other.dtype = 7; }));
  EXPECT_TRUE(differs([](auto& other) { other.count = 11; }));
  EXPECT_TRUE(differs([](auto& other) { other.root = 1; }));
  EXPECT_TRUE(differs([](auto& other) { other.detail = 1; }));
}

TEST(SignatureTest, AllToAllAgreesPairwise) {
  CallSignature mine;
  mine.operation = Operation::all_to_all;
  mine.count = 100;
  mine.to_peer = 3;
  mine.from_peer = 5;
  CallSignature theirs = mine;
  theirs.count = 7;
  EXPECT_FALSE(agree(mine, theirs));
  theirs.to_peer = 5;
  theirs.from_peer = 3;
  EXPECT_TRUE(agree(mine, theirs));
}

TEST(StackTest, ShowsWhereAnotherThreadWaits) {
  Gate gate;
  std::atomic<pid_t> id{0};
  std::thread waiter([&] {
    id = static_cast<pid_t>(::syscall(SYS_gettid));
    gate.pass();
  });
  while (id == 0) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(20));
  const auto lines = capture_stack(id, std::chrono::seconds(5));
  gate.open();
  waiter.join();
  EXPECT_GE(lines.size(), 3U);
  EXPECT_THAT(lines, Contains(HasSubstr("libstdc++")));
}

TEST(StackTest, AThreadThatDoesNotExistIsSaid) {
  EXPECT_THAT(capture_stack(2'000'000'000), ElementsAre(HasSubstr("no thread")));
}

TEST(StackTest, AThreadThatBlocksTheSignalIsSaid) {
  Gate gate;
  std::atomic<pid_t> id{0};
  std::thread waiter([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    id = static_cast<pid_t>(::syscall(SYS_gettid));
    gate.pass();
  });
  while (id == 0) std::this_thread::yield();
  EXPECT_THAT(capture_stack(id, milliseconds(20)), ElementsAre(HasSubstr("did not answer within 20 ms")));
  gate.open();
  waiter.join();
}

}  // namespace
}  // namespace dtorch
