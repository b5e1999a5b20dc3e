// A process group over a backend that does as it is told: how failures are explained, logged and dumped.
#include "core/comm/process_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "backends/registry/registry.h"
#include "core/base/log.h"
#include "core/comm/post_mortem.h"
#include "core/comm/stall_dump.h"
#include "core/comm/work_queue.h"

namespace dtorch {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/** Every operation runs `behaviour`; abort() is noted. */
class PuppetBackend : public Backend {
 public:
  explicit PuppetBackend(std::function<void()> behaviour) : behaviour_(std::move(behaviour)) {}
  std::string_view name() const override { return "puppet"; }
  std::string_view device() const override { return "cpu"; }
  WorkPtr all_reduce(const at::Tensor&, ReduceOp, Call call) override { return start(std::move(call)); }
  WorkPtr reduce(const at::Tensor&, int, ReduceOp, Call call) override { return start(std::move(call)); }
  WorkPtr broadcast(const at::Tensor&, int, Call call) override { return start(std::move(call)); }
  WorkPtr all_gather(const at::Tensor&, const at::Tensor&, Call call) override {
    return start(std::move(call));
  }
  WorkPtr gather(const at::Tensor&, const at::Tensor&, int, Call call) override {
    return start(std::move(call));
  }
  WorkPtr scatter(const at::Tensor&, const at::Tensor&, int, Call call) override {
    return start(std::move(call));
  }
  WorkPtr reduce_scatter(const at::Tensor&, const at::Tensor&, ReduceOp, Call call) override {
    return start(std::move(call));
  }
  WorkPtr all_to_all(const at::Tensor&, const at::Tensor&, std::span<const std::int64_t>,
                     std::span<const std::int64_t>, Call call) override {
    return start(std::move(call));
  }
  WorkPtr send(const at::Tensor&, int, int, Call call) override { return start(std::move(call)); }
  WorkPtr recv(const at::Tensor&, int, int, Call call) override { return start(std::move(call)); }
  WorkPtr barrier(Call call) override { return start(std::move(call)); }
  void abort(const std::string& reason) override {
    queue_.fail(std::make_exception_ptr(PeerError(ErrorKind::lost, reason)));
  }
  std::shared_ptr<void> allocate(std::size_t) override { return nullptr; }
  std::shared_ptr<void> allocate_common(std::size_t) override { return nullptr; }

 private:
  WorkPtr start(Call call) {
    return queue_.push([this, call = std::move(call)](Progress&) {
      behaviour_();
      if (call.finish) call.finish();
    });
  }

  std::function<void()> behaviour_;
  WorkQueue queue_;
};

class PuppetFactory : public BackendFactory {
 public:
  explicit PuppetFactory(std::function<void()> behaviour) : behaviour_(std::move(behaviour)) {}
  std::string_view name() const override { return "puppet"; }
  Availability probe() const override { return {}; }
  std::unique_ptr<Backend> create(const StorePtr&, int, int, const BackendOptions&) const override {
    return std::make_unique<PuppetBackend>(behaviour_);
  }

 private:
  std::function<void()> behaviour_;
};

/** Rank 0 of four; the other ranks exist only as notes in the store. */
class ProcessGroupTest : public ::testing::Test {
 protected:
  ProcessGroupPtr group(std::function<void()> behaviour = [] {}) {
    factory_ = std::make_unique<PuppetFactory>(std::move(behaviour));
    ProcessGroupOptions options;
    options.timeout = milliseconds(20'000);
    return std::make_shared<ProcessGroup>(*factory_, store_, 0, 4, options);
  }
  void leave_note(const FailureNote& note) {
    publish_note(c10::make_intrusive<c10d::PrefixStore>("group/default", store_), note);
  }
  static CollectiveError failure_of(ProcessGroup& group) {
    at::Tensor tensor = at::ones({5});
    try {
      group.all_reduce(tensor)->wait();
    } catch (const CollectiveError& error) {
      return error;
    }
    throw std::runtime_error("the collective did not fail");
  }

  StorePtr store_ = c10::make_intrusive<c10d::HashStore>();
  std::unique_ptr<PuppetFactory> factory_;
};

TEST_F(ProcessGroupTest, ALostRankWithoutANoteIsGone) {
  const auto pg = group([] { throw PeerError(ErrorKind::lost, "reset", {2}); });
  const auto begin = Clock::now();
  const auto error = failure_of(*pg);
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
  EXPECT_EQ(error.kind(), ErrorKind::lost);
  EXPECT_TRUE(error.consequence());
  EXPECT_THAT(error.missing(), ElementsAre(2));
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("all_reduce sum float32[5]"), HasSubstr("#1"), HasSubstr("20 bytes")));
  EXPECT_EQ(error.record().sequence, 1U);
}

TEST_F(ProcessGroupTest, ALostRankThatLeftANoteIsExplainedByIt) {
  leave_note({2, ErrorKind::timeout, "rank 3 did not come", {3}, 1, "all_reduce sum float32[5]"});
  const auto pg = group([] { throw PeerError(ErrorKind::lost, "reset", {2}); });
  const auto error = failure_of(*pg);
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_TRUE(error.consequence());
  EXPECT_THAT(error.missing(), ElementsAre(3));
  EXPECT_THAT(error.what(), HasSubstr("rank 3 did not come"));
}

TEST_F(ProcessGroupTest, ChainsOfLostRanksAreFollowedToTheirEnd) {
  leave_note({1, ErrorKind::lost, "the connection to rank 2 was lost", {2}, 1, "barrier"});
  leave_note({2, ErrorKind::disagree, "ranks call different collectives", {3}, 1, "barrier"});
  const auto pg = group([] { throw PeerError(ErrorKind::lost, "reset", {1}); });
  const auto error = failure_of(*pg);
  EXPECT_EQ(error.kind(), ErrorKind::disagree);
  EXPECT_THAT(error.what(), HasSubstr("rank 2 gave up"));
}

TEST_F(ProcessGroupTest, InAStallWhoLeavesNoNoteDidNotCome) {
  leave_note({1, ErrorKind::lost, "", {}, 1, "all_reduce sum float32[5]"});
  leave_note({3, ErrorKind::lost, "", {}, 1, "all_reduce sum float32[5]"});
  const auto pg = group([] { throw PeerError(ErrorKind::timeout, "late"); });
  const auto error = failure_of(*pg);
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_FALSE(error.consequence());
  EXPECT_THAT(error.missing(), ElementsAre(2));
}

TEST_F(ProcessGroupTest, AStallOfRanksInDifferentCollectivesIsADisagreement) {
  for (const int rank : {1, 2}) leave_note({rank, ErrorKind::lost, "", {}, 1, "all_reduce sum float32[5]"});
  leave_note({3, ErrorKind::lost, "", {}, 1, "barrier"});
  const auto pg = group([] { throw PeerError(ErrorKind::timeout, "late"); });
  const auto error = failure_of(*pg);
  EXPECT_EQ(error.kind(), ErrorKind::disagree);
  EXPECT_THAT(error.what(), HasSubstr("rank 3 is in barrier (#1)"));
}

TEST_F(ProcessGroupTest, AMalformedNoteIsPassedOver) {
  store_->set("group/default/failure/2", std::string("{\"kind\":7}"));
  const auto pg = group([] { throw PeerError(ErrorKind::lost, "reset", {2}); });
  EXPECT_EQ(failure_of(*pg).kind(), ErrorKind::lost);
}

TEST_F(ProcessGroupTest, LaterCallsFailWithTheFirstReason) {
  const auto pg = group([] { throw PeerError(ErrorKind::disagree, "the first reason", {1}); });
  const auto first = failure_of(*pg);
  EXPECT_STREQ(failure_of(*pg).what(), first.what());
  EXPECT_THROW(pg->barrier(), CollectiveError);
  EXPECT_THROW(pg->monitored_barrier(), CollectiveError);
}

/** The store's server is stopped: nothing that is asked of it returns. */
class DeafStore : public c10d::HashStore {
 public:
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    hang();
    HashStore::set(key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    hang();
    return HashStore::check(keys);
  }
  std::atomic<bool> deaf{true};

 private:
  void hang() const {
    while (deaf) std::this_thread::sleep_for(milliseconds(10));
  }
};

TEST_F(ProcessGroupTest, AStoreThatDoesNotAnswerDoesNotHoldAFailureBack) {
  const auto store = c10::make_intrusive<DeafStore>();
  store_ = store;
  const auto pg = group([] { throw PeerError(ErrorKind::lost, "reset", {2}); });
  const auto begin = Clock::now();
  const auto error = failure_of(*pg);
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
  EXPECT_EQ(error.kind(), ErrorKind::lost);
  store->deaf = false;
  std::this_thread::sleep_for(milliseconds(50));
}

TEST_F(ProcessGroupTest, DebugLevelLogsEveryCollective) {
  std::mutex mutex;
  std::vector<std::string> lines;
  set_log_level(LogLevel::debug);
  set_log_sink([&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  });
  const auto pg = group();
  at::Tensor tensor = at::ones({5}, at::kHalf);
  pg->broadcast(tensor, 3)->wait();
  set_log_sink(nullptr);
  set_log_level(LogLevel::info);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("[default] rank 0 #1"),
                                    HasSubstr("broadcast from 3 float16[5] 10 bytes"))));
}

TEST_F(ProcessGroupTest, StallDumpShowsTheRingAndTheStack) {
  std::atomic<bool> go{false};
  const auto pg = group([&go] {
    while (!go) std::this_thread::sleep_for(milliseconds(1));
  });
  const auto work = pg->barrier();
  const auto dump = stall_dump(*pg, ::getpid());
  go = true;
  work->wait();
  EXPECT_EQ(dump.at("type"), "ring");
  EXPECT_EQ(dump.at("rank"), 0);
  ASSERT_EQ(dump.at("ring").size(), 1U);
  EXPECT_EQ(dump.at("ring")[0].at("operation"), "barrier");
  EXPECT_EQ(dump.at("ring")[0].at("sequence"), 1);
  EXPECT_TRUE(dump.at("ring")[0].at("took_ms").is_null());
  EXPECT_FALSE(dump.at("stack").empty());
  EXPECT_FALSE(ring_json(*pg)[0].at("took_ms").is_null());
}

TEST_F(ProcessGroupTest, AbortDoesNotNeedACollectiveUnderWay) {
  const auto pg = group();
  pg->abort("another rank failed");
  EXPECT_THAT(failure_of(*pg).what(), HasSubstr("another rank failed"));
  EXPECT_FALSE(pg->current().has_value());
}

/** gloo, whose every backend but the first one calls a hook before it is made. */
class HookedFactory : public BackendFactory {
 public:
  explicit HookedFactory(std::function<void()> hook) : hook_(std::move(hook)) {}
  std::string_view name() const override { return "hooked"; }
  Availability probe() const override { return {}; }
  std::unique_ptr<Backend> create(const StorePtr& store, int rank, int world,
                                  const BackendOptions& options) const override {
    if (made_++ > 0) {
      over_.set_value_at_thread_exit();
      hook_();
    }
    return find_backend("gloo").create(store, rank, world, options);
  }
  /** Waits for the thread that has called the hook: it uses this object. */
  void await_end() const { over_.get_future().wait_for(std::chrono::seconds(30)); }

 private:
  const std::function<void()> hook_;
  mutable std::atomic<int> made_{0};
  mutable std::promise<void> over_;
};

std::optional<CollectiveError> failure_of_new_group(ProcessGroup& parent) {
  try {
    parent.new_group({0});
  } catch (const CollectiveError& error) {
    return error;
  }
  return std::nullopt;
}

TEST(NewGroupTest, AbortWakesWhoWaitsForTheRanksOfANewGroup) {
  std::promise<void> waiting;
  std::promise<void> come;
  const HookedFactory factory([&] {
    waiting.set_value();
    come.get_future().wait_for(std::chrono::seconds(20));
  });
  ProcessGroup parent(factory, c10::make_intrusive<c10d::HashStore>(), 0, 1, {});
  std::thread aborter([&] {
    waiting.get_future().wait();
    parent.abort("another rank failed");
  });
  const auto begin = Clock::now();
  const auto error = failure_of_new_group(parent);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  aborter.join();
  come.set_value();
  factory.await_end();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::lost);
  EXPECT_THAT(error->what(), HasSubstr("another rank failed"));
}

TEST(NewGroupTest, AGroupThatIsAbortedMeanwhileHasNoNewOnes) {
  ProcessGroup* aborted = nullptr;
  const HookedFactory factory([&] { aborted->abort("another rank failed"); });
  ProcessGroup parent(factory, c10::make_intrusive<c10d::HashStore>(), 0, 1, {});
  aborted = &parent;
  const auto error = failure_of_new_group(parent);
  factory.await_end();
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(error->what(), HasSubstr("another rank failed"));
}

TEST_F(ProcessGroupTest, WhatLibtorchThrowsIsToldWithoutItsStack) {
  const auto pg = group([] { at::ones({2}) + at::ones({3}); });
  EXPECT_THAT(failure_of(*pg).what(),
              AllOf(HasSubstr("must match"), Not(HasSubstr("Exception raised from"))));
}

TEST(RegistryTest, KnowsItsBackends) {
  for (const std::string name : {"gloo", "tcp", "shm", "auto"}) EXPECT_EQ(find_backend(name).name(), name);
  // Which is also the check that gloo:: comes from libgloo here, not from libtorch.
  EXPECT_THAT(find_backend("gloo").probe().reason, IsEmpty());
  try {
    find_backend("glue");
    ADD_FAILURE() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::spec);
    EXPECT_THAT(error.help(), HasSubstr("gloo"));
  }
}

}  // namespace
}  // namespace dtorch
