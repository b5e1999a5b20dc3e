// How groups fail: deadlines, aborts, ranks that call something else, ranks that die or stop.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <random>
#include <thread>

#include "tests/conformance/harness.h"

namespace dtorch::conformance {
namespace {

// Machines that run tests are loaded: what should take 50 ms is given this long.
constexpr milliseconds kSoon{2'000};

/** The last rank is missing; where deadlines are short, slow others may rightly be named beside it. */
void expect_last_missing(const Thrown& thrown, const Rank& rank, bool others_may_be = false) {
  const auto& missing = thrown.missing;
  const bool named = std::find(missing.begin(), missing.end(), rank.world() - 1) != missing.end();
  expect(named && (others_may_be || missing.size() == 1),
         "names the wrong ranks as missing: " + thrown.message);
}

/** All but the last rank call `action` and run into their deadline; the last comes when they have all given
 * up. */
void deadline_passes(Rank& rank, milliseconds timeout, const std::function<void(ProcessGroup&)>& action) {
  const auto group = rank.group(timeout);
  if (rank.last()) {
    for (int peer = 0; peer + 1 < rank.world(); ++peer) rank.await(fmt::format("gave up {}", peer));
    // Too late: the others have closed the group, and say why.
    const auto thrown = expect_error([&] { action(*group); }, {ErrorKind::timeout, ErrorKind::lost});
    expect(thrown.after < kSoon, "the late rank was not told at once");
    return;
  }
  const auto thrown = expect_error([&] { action(*group); }, ErrorKind::timeout);
  rank.tell(fmt::format("gave up {}", rank.rank()));
  // Before its deadline a rank gives up only if another one's, which began earlier, has passed.
  const bool in_time = thrown.consequence || thrown.after >= std::min(timeout, milliseconds(10));
  expect(in_time && thrown.after < timeout + kSoon, fmt::format("ended after {} ms", thrown.after.count()));
  expect_last_missing(thrown, rank, true);
  expect(contains(thrown.message, "#1") && contains(thrown.message, "bytes"), thrown.message);
}

void deadline_of_10_ms(Rank& rank) {
  deadline_passes(rank, milliseconds(10), [](ProcessGroup& group) {
    at::Tensor tensor = at::ones({1000});
    group.all_reduce(tensor)->wait();
  });
}

void deadline_of_agreed_call(Rank& rank) {
  deadline_passes(rank, milliseconds(10), [](ProcessGroup& group) {
    at::Tensor tensor = at::ones({300'000});
    group.all_reduce_agreed(tensor)->wait();
  });
}

void deadline_of_barrier(Rank& rank) {
  deadline_passes(rank, milliseconds(60'000),
                  [](ProcessGroup& group) { group.monitored_barrier(milliseconds(50)); });
}

void shorter_wait_poisons(Rank& rank) {
  const auto group = rank.group();
  if (rank.rank() != 0) return rank.await("gave up");
  at::Tensor tensor = at::ones({10});
  const auto work = group->all_reduce(tensor);
  const auto thrown =
      expect_error([&] { work->wait(Deadline::after(milliseconds(20))); }, ErrorKind::timeout);
  rank.tell("gave up");
  const auto again = expect_error([&] { group->barrier()->wait(); }, ErrorKind::timeout);
  expect(again.message == thrown.message,
         "a later call does not fail with the first reason: " + again.message);
  expect(again.after < milliseconds(100), "a later call waits");
}

void recv_deadline(Rank& rank) {
  const auto group = rank.group(milliseconds(10));
  if (rank.rank() == 0) {
    at::Tensor tensor = at::ones({10});
    const auto thrown = expect_error([&] { group->recv(tensor, 1)->wait(); }, ErrorKind::timeout);
    expect(thrown.missing == std::vector<int>{1}, thrown.message);
    rank.tell("gave up");
  } else {
    rank.await("gave up");
  }
}

void abort_wakes(Rank& rank) {
  const auto group = rank.group();
  if (rank.rank() != 0) return rank.await("aborted");
  std::thread aborter([&] {
    std::this_thread::sleep_for(milliseconds(50));
    group->abort("the test says so");
  });
  at::Tensor tensor = at::ones({10});
  const auto thrown = expect_error([&] { group->all_reduce(tensor)->wait(); }, ErrorKind::lost);
  aborter.join();
  rank.tell("aborted");
  expect(contains(thrown.message, "the test says so"), thrown.message);
  expect(thrown.after < kSoon, "abort did not wake the waiter");
  const auto again = expect_error([&] { group->barrier(); }, ErrorKind::lost);
  expect(contains(again.message, "the test says so"), again.message);
}

/** Also where data is half-way: the peer has begun to receive and reads no further. */
void abort_reaches_peers(Rank& rank) {
  const auto group = rank.group();
  at::Tensor tensor = at::ones({1 << 20});
  if (rank.rank() == 0) {
    group->all_reduce(tensor)->wait();
    group->abort("enough of this");
    return;
  }
  const auto thrown = expect_error(
      [&] {
        for (int i = 0; i < 100; ++i) group->all_reduce(tensor)->wait();
      },
      ErrorKind::lost);
  expect(contains(thrown.message, "enough of this"), thrown.message);
  expect(thrown.consequence, "a consequence of another rank's failure");
}

void abort_reaches_sub_groups(Rank& rank) {
  const auto group = rank.group();
  std::vector<int> ranks;
  for (int peer = 0; peer < rank.world(); ++peer) ranks.push_back(peer);
  const auto child = group->new_group(ranks);
  group->abort("all of it");
  expect_error([&] { child->barrier()->wait(); }, ErrorKind::lost);
}

/** The last rank does `odd`, the others `common`: all get Error(disagree) that names both calls. */
void disagree(Rank& rank, const std::function<void(ProcessGroup&)>& common,
              const std::function<void(ProcessGroup&)>& odd, const std::string& common_text,
              const std::string& odd_text) {
  const auto group = rank.group();
  at::Tensor tensor = at::ones({5});
  const auto thrown = expect_error(
      [&] {
        group->all_reduce(tensor)->wait();  // a slow rank may hear of the others' disagreement here already
        rank.last() ? odd(*group) : common(*group);
      },
      ErrorKind::disagree);
  expect(contains(thrown.message, common_text) && contains(thrown.message, odd_text) &&
             contains(thrown.message, "#2"),
         "does not name both calls: " + thrown.message);
}

void reduce_with(ProcessGroup& group, at::ScalarType dtype, std::int64_t size, ReduceOp op) {
  at::Tensor tensor = at::ones({size}, dtype);
  group.all_reduce(tensor, op)->wait();
}

void other_operation(Rank& rank) {
  disagree(
      rank, [](auto& group) { reduce_with(group, at::kFloat, 10, ReduceOp::sum); },
      [](auto& group) { group.barrier()->wait(); }, "all_reduce sum float32[10]", "barrier");
}

void other_reduction(Rank& rank) {
  disagree(
      rank, [](auto& group) { reduce_with(group, at::kFloat, 10, ReduceOp::sum); },
      [](auto& group) { reduce_with(group, at::kFloat, 10, ReduceOp::max); }, "all_reduce sum",
      "all_reduce max");
}

void other_dtype(Rank& rank) {
  disagree(
      rank, [](auto& group) { reduce_with(group, at::kFloat, 10, ReduceOp::sum); },
      [](auto& group) { reduce_with(group, at::kInt, 10, ReduceOp::sum); }, "float32[10]", "int32[10]");
}

void other_size(Rank& rank) {
  disagree(
      rank, [](auto& group) { reduce_with(group, at::kFloat, 1'000'000, ReduceOp::sum); },
      [](auto& group) { reduce_with(group, at::kFloat, 999'999, ReduceOp::sum); }, "float32[1000000]",
      "float32[999999]");
}

/** A rank that only sends may hear of it in its next call. */
void other_root(Rank& rank) {
  const auto from = [](ProcessGroup& group, int root) {
    at::Tensor tensor = at::ones({10});
    group.broadcast(tensor, root)->wait();
    group.barrier()->wait();
  };
  disagree(
      rank, [&](auto& group) { from(group, 0); }, [&](auto& group) { from(group, 1); }, "broadcast from ",
      "called b");
}

void other_order(Rank& rank) {
  disagree(
      rank,
      [](auto& group) {
        reduce_with(group, at::kFloat, 10, ReduceOp::sum);
        reduce_with(group, at::kFloat, 20, ReduceOp::sum);
      },
      [](auto& group) {
        reduce_with(group, at::kFloat, 20, ReduceOp::sum);
        reduce_with(group, at::kFloat, 10, ReduceOp::sum);
      },
      "float32[10]", "float32[20]");
}

void other_coalesced_sizes(Rank& rank) {
  const auto reduce = [](ProcessGroup& group, std::int64_t first) {
    std::vector<at::Tensor> tensors{at::ones({first}), at::ones({10 - first})};
    group.all_reduce_coalesced(tensors)->wait();
  };
  disagree(
      rank, [&](auto& group) { reduce(group, 3); }, [&](auto& group) { reduce(group, 4); }, "float32[10]",
      "sizes");
}

void other_splits(Rank& rank) {
  const auto group = rank.group();
  const auto world = static_cast<std::size_t>(rank.world());
  // The last rank sends two rows to rank 0, which expects one of everybody.
  std::vector<std::int64_t> in_splits(world, 1);
  if (rank.last()) in_splits[0] = 2;
  const at::Tensor input = at::ones({static_cast<std::int64_t>(world) + (rank.last() ? 1 : 0)});
  at::Tensor output = at::ones({static_cast<std::int64_t>(world)});
  const auto thrown = expect_error(
      [&] {
        group->all_to_all_single(output, input, std::vector<std::int64_t>(world, 1), in_splits)->wait();
      },
      ErrorKind::disagree);
  expect(contains(thrown.message, "all_to_all"), thrown.message);
}

void other_message_size(Rank& rank) {
  const auto group = rank.group();
  if (rank.rank() > 1) return;
  at::Tensor tensor = at::ones({rank.rank() == 0 ? 1000 : 10});
  const auto thrown =
      expect_error([&] { (rank.rank() == 0 ? group->send(tensor, 1) : group->recv(tensor, 0))->wait(); },
                   ErrorKind::disagree);
  expect(contains(thrown.message, "float32[1000]") && contains(thrown.message, "float32[10]"),
         thrown.message);
}

/** Where shapes are not compared beforehand the deadline tells, from what the ranks were in. */
void agreed_against_barrier(Rank& rank) {
  const auto group = rank.group(milliseconds(300));
  const auto thrown = expect_error(
      [&] {
        at::Tensor tensor = at::ones({100'000});
        (rank.last() ? group->barrier() : group->all_reduce_agreed(tensor))->wait();
      },
      {ErrorKind::disagree, ErrorKind::timeout});
  expect(thrown.after < milliseconds(300) + 2 * kSoon, "the deadline did not hold");
  if (thrown.kind == ErrorKind::disagree) {
    expect(contains(thrown.message, "barrier") && contains(thrown.message, "all_reduce"), thrown.message);
  }
}

void other_new_group(Rank& rank) {
  const auto group = rank.group();
  const auto thrown = expect_error([&] { group->new_group({rank.last() ? 1 : 0}); }, ErrorKind::disagree);
  expect(contains(thrown.message, "new_group"), thrown.message);
}

void missing_when_connecting(Rank& rank) {
  if (rank.last()) return;
  const auto thrown =
      expect_error([&] { rank.group(milliseconds(1000), milliseconds(300)); }, ErrorKind::timeout);
  expect(contains(thrown.message, fmt::format("rank {}", rank.world() - 1)), thrown.message);
  expect(thrown.after < milliseconds(300) + kSoon, "the deadline did not hold");
}

/** The last rank is killed somewhere in a stream of collectives, between them or half-way through one. */
void killed_rank(Rank& rank) {
  const auto group = rank.group();
  group->barrier()->wait();
  std::thread killer;
  if (rank.last()) {
    killer = std::thread([] {
      std::this_thread::sleep_for(std::chrono::microseconds(std::random_device()() % 50'000));
      ::raise(SIGKILL);
    });
  }
  const auto thrown = expect_error(
      [&] {
        at::Tensor tensor = at::ones({300'000});
        for (int i = 0; i < 100'000; ++i) {
          const auto begin = Clock::now();
          try {
            group->all_reduce(tensor)->wait();
          } catch (...) {
            expect(Clock::now() - begin < kSoon, "the survivors were not told in time");
            throw;
          }
        }
      },
      ErrorKind::lost);
  expect(thrown.consequence, "a consequence");
  expect(std::find(thrown.missing.begin(), thrown.missing.end(), rank.world() - 1) != thrown.missing.end(),
         "does not name the killed rank: " + thrown.message);
}

void stopped_rank(Rank& rank) {
  const auto group = rank.group(milliseconds(1'500));
  at::Tensor tensor = at::ones({300'000});
  for (int i = 0; i < 10; ++i) group->all_reduce(tensor)->wait();
  if (rank.last()) ::raise(SIGSTOP);
  const auto thrown = expect_error([&] { group->all_reduce(tensor)->wait(); }, ErrorKind::timeout);
  expect_last_missing(thrown, rank);
}

void stopped_half_way(Rank& rank) {
  const auto group = rank.group(milliseconds(1'500));
  std::thread stopper;
  if (rank.last()) {
    stopper = std::thread([] {
      std::this_thread::sleep_for(std::chrono::microseconds(std::random_device()() % 50'000));
      ::raise(SIGSTOP);
    });
  }
  at::Tensor tensor = at::ones({300'000});
  const auto thrown = expect_error(
      [&] {
        for (int i = 0; i < 100'000; ++i) group->all_reduce_agreed(tensor)->wait();
      },
      ErrorKind::timeout);
  expect_last_missing(thrown, rank);
}

constexpr std::array kFailureCases{
    Case{"DeadlineOf10Ms", 2, deadline_of_10_ms},
    Case{"DeadlineOfAgreedCall", 2, deadline_of_agreed_call},
    Case{"MonitoredBarrierNamesTheMissing", 2, deadline_of_barrier},
    Case{"ShorterWaitPoisons", 2, shorter_wait_poisons},
    Case{"RecvDeadline", 2, recv_deadline},
    Case{"AbortWakes", 2, abort_wakes},
    Case{"AbortReachesPeers", 2, abort_reaches_peers},
    Case{"AbortReachesSubGroups", 1, abort_reaches_sub_groups},
    Case{"OtherOperation", 2, other_operation},
    Case{"OtherReduction", 2, other_reduction},
    Case{"OtherDtype", 2, other_dtype},
    Case{"OtherSize", 2, other_size},
    Case{"OtherRoot", 2, other_root},
    Case{"OtherOrder", 2, other_order},
    Case{"OtherCoalescedSizes", 2, other_coalesced_sizes},
    Case{"OtherSplits", 2, other_splits},
    Case{"OtherMessageSize", 2, other_message_size},
    Case{"AgreedAgainstBarrier", 2, agreed_against_barrier},
    Case{"OtherNewGroup", 2, other_new_group},
    Case{"MissingWhenConnecting", 2, missing_when_connecting},
    Case{"KilledRank", 2, killed_rank, true},
    Case{"StoppedRank", 2, stopped_rank, true},
    Case{"StoppedHalfWay", 2, stopped_half_way, true},
};

}  // namespace

std::span<const Case> failure_cases() { return kFailureCases; }

}  // namespace dtorch::conformance
