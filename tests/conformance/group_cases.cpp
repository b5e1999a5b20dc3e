// What a group is beyond single collectives: overlap, sub-groups, bytes, arguments, records.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>

#include "tests/conformance/harness.h"
#include "tests/conformance/oracle.h"

namespace dtorch::conformance {
namespace {

void many_under_way(Rank& rank) {
  const auto group = rank.group();
  std::vector<at::Tensor> tensors;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 32; ++i) {
    tensors.push_back(at::full({1 + i * 100}, rank.rank() + i, at::kFloat));
    works.push_back(group->all_reduce(tensors.back()));
  }
  const int ranks_sum = rank.world() * (rank.world() - 1) / 2;
  for (std::size_t i = works.size(); i-- > 0;) {
    works[i]->wait();
    const auto expected = static_cast<double>(ranks_sum + rank.world() * static_cast<int>(i));
    expect_equal(tensors[i], at::full_like(tensors[i], expected), fmt::format("number {}", i));
    expect(works[i]->is_completed(), "waited for but not completed");
    works[i]->wait();  // again is harmless
  }
}

void starting_does_not_wait(Rank& rank) {
  const auto group = rank.group();
  if (rank.rank() != 0) rank.await("started");
  at::Tensor tensor = at::ones({10});
  const auto work = group->all_reduce(tensor);
  if (rank.rank() == 0) {
    expect(!work->is_completed(), "completed before the others had come");
    const auto current = group->current();
    expect(current.has_value() && current->operation == "all_reduce sum float32[10]" && !current->finished,
           "current() does not show it: " + (current ? current->operation : std::string("nothing")));
    rank.tell("started");
  }
  work->wait();
  expect_equal(tensor, at::full({10}, rank.world(), at::kFloat), "sum");
  expect(!group->current(), "current() after the end");
}

void sub_groups(Rank& rank) {
  const auto group = rank.group();
  std::vector<int> evens;
  std::vector<int> backwards;
  for (int peer = 0; peer < rank.world(); peer += 2) evens.push_back(peer);
  for (int peer = rank.world() - 1; peer >= 0; --peer) backwards.push_back(peer);
  const auto even = group->new_group(evens);
  const auto reversed = group->new_group(backwards);
  expect((even != nullptr) == (rank.rank() % 2 == 0), "membership");
  expect(reversed->rank() == rank.world() - 1 - rank.rank() && reversed->size() == rank.world(),
         "rank in the new group");
  at::Tensor from_first = at::full({1}, rank.rank(), at::kInt);
  reversed->broadcast(from_first, 0)->wait();
  expect_equal(from_first, at::full({1}, rank.world() - 1, at::kInt), "ranks named are those of the group");
  if (even) {
    // The sub-group's collectives are numbered apart: the others do not take part.
    for (int i = 0; i < 5; ++i) {
      at::Tensor tensor = at::full({1000}, rank.rank(), at::kInt);
      even->all_reduce(tensor)->wait();
      int sum = 0;
      for (const int peer : evens) sum += peer;
      expect_equal(tensor, at::full({1000}, sum, at::kInt), "sum over even ranks");
    }
    const auto inner = even->new_group({0});
    expect((inner != nullptr) == (even->rank() == 0), "a group of a sub-group");
  }
  group->barrier()->wait();
}

void bytes(Rank& rank) {
  const auto group = rank.group();
  const auto text = [](int peer) {
    return std::string(static_cast<std::size_t>(peer) * 1000, static_cast<char>('a' + peer));
  };
  const auto all = group->all_gather_bytes(text(rank.rank()));
  expect(all.size() == static_cast<std::size_t>(rank.world()), "count");
  for (int peer = 0; peer < rank.world(); ++peer)
    expect(all[static_cast<std::size_t>(peer)] == text(peer), "bytes differ");
  for (const auto& empty : group->all_gather_bytes("")) expect(empty.empty(), "no bytes");
}

void refuses(const std::function<void()>& call, const std::string& part) {
  const auto thrown = expect_error(call, ErrorKind::usage);
  expect(contains(thrown.message, part), "'" + thrown.message + "' lacks '" + part + "'");
}

/** A refused argument harms nobody: the group goes on. */
void arguments(Rank& rank) {
  const auto group = rank.group();
  at::Tensor floats = at::ones({4});
  at::Tensor ints = at::ones({4}, at::kInt);
  at::Tensor shorts = at::ones({4}, at::kShort);
  at::Tensor complex = at::ones({4}, at::kComplexFloat);
  at::Tensor undefined;
  std::vector<at::Tensor> none;
  at::Tensor repeated = at::ones({1}).expand({4});
  refuses([&] { group->all_reduce(ints, ReduceOp::avg); }, "all_reduce: no average of Int");
  refuses([&] { group->all_reduce(floats, ReduceOp::bxor); }, "all_reduce: no bxor of Float");
  refuses([&] { group->all_reduce(shorts); }, "unsupported type Short");
  refuses([&] { group->all_reduce(complex); }, "unsupported type ComplexFloat");
  refuses([&] { group->all_reduce(undefined); }, "not a tensor");
  refuses([&] { group->broadcast(floats, rank.world()); }, fmt::format("broadcast: root {}", rank.world()));
  refuses([&] { group->broadcast(floats, -1); }, "root -1");
  refuses([&] { group->all_gather(none, floats); }, "all_gather: 0 outputs");
  refuses([&] { group->all_gather_into_tensor(ints, floats); }, "Int");
  refuses([&] { group->all_gather_into_tensor(floats, floats); }, "cannot hold");
  refuses([&] { group->send(floats, rank.rank()); }, "itself");
  refuses([&] { group->all_to_all_single(floats, floats, {1, 2, 3, 4, 5, 6, 7}, {}); }, "splits");
  refuses([&] { group->all_reduce(repeated); }, "share memory");
  refuses([&] { group->broadcast(repeated, 0); }, "share memory");
  std::vector<at::Tensor> list(static_cast<std::size_t>(rank.world()), repeated);
  refuses([&] { group->all_gather(list, floats); }, "share memory");
  refuses([&] { group->new_group({0, 0}); }, "distinct");
  refuses([&] { group->new_group({99}); }, "99");
  group->all_reduce(floats)->wait();
  expect_equal(floats, at::full({4}, rank.world(), at::kFloat), "the group after refusals");
}

/** What a rank keeps for itself has two sizes, which nobody else can compare. */
void own_part_of_all_to_all(Rank& rank) {
  const auto group = rank.group();
  const auto world = static_cast<std::size_t>(rank.world());
  const auto own = static_cast<std::size_t>(rank.rank());
  std::vector<std::int64_t> taken(world, 1);
  std::vector<std::int64_t> given(world, 1);
  given[own] = 3;
  at::Tensor output = at::zeros({rank.world()});
  const at::Tensor input = at::ones({rank.world() + 2});
  const std::string text = "gives itself 3 elements and takes 1";
  refuses([&] { group->all_to_all_single(output, input, taken, given)->wait(); }, text);
  std::vector<at::Tensor> outputs(world, at::zeros({1}));
  std::vector<at::Tensor> inputs(world, at::ones({1}));
  inputs[own] = at::ones({3});
  refuses([&] { group->all_to_all(outputs, inputs)->wait(); }, text);
  group->barrier()->wait();
}

/** A rank that has what it wants may close a group; the others get what it gave them. */
void closed_while_others_are_busy(Rank& rank) {
  const auto group = rank.group();
  std::vector<int> all(static_cast<std::size_t>(rank.world()));
  std::iota(all.begin(), all.end(), 0);
  for (const std::int64_t size : {10, 200'000}) {
    const auto sub = group->new_group(all);
    at::Tensor tensor = at::full({size}, rank.rank() == 0 ? 7.0 : 0.0);
    std::this_thread::sleep_for(milliseconds(200) * rank.rank());
    sub->broadcast(tensor, 0)->wait();
    sub->close("closed by the test");
    expect_equal(tensor, at::full({size}, 7.0), "what rank 0 gave before it closed the group");
    refuses([&] { sub->barrier(); }, "closed by the test");
  }
  group->barrier()->wait();
}

void records(Rank& rank) {
  const auto group = rank.group();
  expect(group->recent().empty(), "records of a new group");
  at::Tensor tensor = at::ones({3}, at::kHalf);
  for (int i = 0; i < 70; ++i) group->all_reduce(tensor, ReduceOp::max)->wait();
  const auto recent = group->recent();
  expect(recent.size() == 64, "the ring keeps 64");
  expect(recent.front().sequence == 7 && recent.back().sequence == 70, "oldest first, numbered from 1");
  expect(recent.back().operation == "all_reduce max float16[3]" && recent.back().bytes == 6,
         recent.back().operation);
  expect(recent.back().finished && *recent.back().finished >= recent.back().started, "times");
  if (rank.last()) std::this_thread::sleep_for(milliseconds(100));
  const auto before = group->time_waiting();
  group->barrier()->wait();
  if (!rank.last()) expect(group->time_waiting() - before > milliseconds(50), "waiting is measured");
}

/** Parameters may be passed as they are: collectives are not recorded for autograd. */
void tensors_with_gradients(Rank& rank) {
  const auto group = rank.group();
  for (const std::int64_t size : {10, 100'000}) {
    at::Tensor parameter = at::full({size}, rank.rank() + 1.0, at::kFloat).requires_grad_(true);
    group->broadcast(parameter, 0)->wait();
    group->all_reduce(parameter, ReduceOp::avg)->wait();
    expect(parameter.requires_grad() && parameter.is_leaf(), "still a leaf");
    expect_equal(parameter.detach(), at::ones({size}), "value");
  }
}

constexpr std::array kGroupCases{
    Case{"ManyUnderWay", 1, many_under_way},
    Case{"StartingDoesNotWait", 2, starting_does_not_wait},
    Case{"SubGroups", 1, sub_groups},
    Case{"Bytes", 1, bytes},
    Case{"Arguments", 2, arguments},
    Case{"OwnPartOfAllToAll", 1, own_part_of_all_to_all},
    Case{"ClosedWhileOthersAreBusy", 2, closed_while_others_are_busy},
    Case{"Records", 2, records},
    Case{"TensorsWithGradients", 1, tensors_with_gradients},
};

}  // namespace

std::span<const Case> group_cases() { return kGroupCases; }

}  // namespace dtorch::conformance
