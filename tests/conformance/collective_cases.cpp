// Every operation × dtype × size against the oracle.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <thread>

#include "tests/conformance/harness.h"
#include "tests/conformance/oracle.h"

namespace dtorch::conformance {
namespace {

const std::vector<std::int64_t> kSizes{0, 1, 7, 1023, 65537};
const std::vector<std::int64_t> kSmallSizes{0, 1, 7, 1023};

std::vector<at::Tensor> inputs_of_all(const Rank& rank, std::int64_t size, at::ScalarType dtype,
                                      std::uint64_t salt, bool for_product = false) {
  std::vector<at::Tensor> inputs;
  for (int peer = 0; peer < rank.world(); ++peer)
    inputs.push_back(input_of(peer, size, dtype, salt, for_product));
  return inputs;
}

/** Runs `check` for every reduction, dtype and size that exist. */
template <typename F>
void for_each_reduction(const F& check) {
  std::uint64_t salt = 1;
  for (const auto dtype : all_dtypes()) {
    for (const auto op : reductions_of(dtype)) {
      for (const auto size : op == ReduceOp::sum || op == ReduceOp::max ? kSizes : kSmallSizes) {
        check(dtype, op, size, ++salt, fmt::format("{} {}", to_string(op), label(dtype, size)));
      }
    }
  }
}

template <typename F>
void for_each_move(const F& check) {
  std::uint64_t salt = 1;
  for (const auto dtype : all_dtypes()) {
    for (const auto size : kSizes) check(dtype, size, ++salt, label(dtype, size));
  }
}

void all_reduce(Rank& rank) {
  const auto group = rank.group();
  for_each_reduction([&](auto dtype, auto op, auto size, auto salt, const auto& what) {
    const auto inputs = inputs_of_all(rank, size, dtype, salt, op == ReduceOp::product);
    at::Tensor tensor = inputs[static_cast<std::size_t>(rank.rank())].clone();
    group->all_reduce(tensor, op)->wait();
    expect_equal(tensor, reduced(inputs, op), what);
  });
}

void all_reduce_agreed(Rank& rank) {
  const auto group = rank.group();
  for (const auto size : kSizes) {
    const auto inputs = inputs_of_all(rank, size, at::kFloat, 3);
    at::Tensor tensor = inputs[static_cast<std::size_t>(rank.rank())].clone();
    group->all_reduce_agreed(tensor)->wait();
    expect_equal(tensor, reduced(inputs, ReduceOp::sum), label(at::kFloat, size));
  }
}

void megabytes(Rank& rank) {
  const auto group = rank.group();
  const std::int64_t size = (1 << 20) + 3;
  const auto inputs = inputs_of_all(rank, size, at::kFloat, 5);
  const auto& mine = inputs[static_cast<std::size_t>(rank.rank())];
  at::Tensor tensor = mine.clone();
  group->all_reduce(tensor)->wait();
  expect_equal(tensor, reduced(inputs, ReduceOp::sum), "all_reduce");
  tensor = mine.clone();
  group->reduce(tensor, 0)->wait();
  expect_equal(tensor, rank.rank() == 0 ? reduced(inputs, ReduceOp::sum) : mine, "reduce");
  tensor = mine.clone();
  group->broadcast(tensor, rank.world() - 1)->wait();
  expect_equal(tensor, inputs.back(), "broadcast");
  at::Tensor gathered = at::empty({rank.world(), size}, at::kFloat);
  group->all_gather_into_tensor(gathered, mine)->wait();
  expect_equal(gathered, at::stack(inputs), "all_gather_into_tensor");
  at::Tensor part = at::empty({size}, at::kFloat);
  group
      ->reduce_scatter_tensor(part,
                              at::cat(std::vector<at::Tensor>(static_cast<std::size_t>(rank.world()), mine)))
      ->wait();
  expect_equal(part, reduced(inputs, ReduceOp::sum), "reduce_scatter_tensor");
}

void reduce(Rank& rank) {
  const auto group = rank.group();
  int root = 0;
  for_each_reduction([&](auto dtype, auto op, auto size, auto salt, const auto& what) {
    root = (root + 1) % rank.world();
    const auto inputs = inputs_of_all(rank, size, dtype, salt, op == ReduceOp::product);
    const auto& mine = inputs[static_cast<std::size_t>(rank.rank())];
    at::Tensor tensor = mine.clone();
    group->reduce(tensor, root, op)->wait();
    expect_equal(tensor, rank.rank() == root ? reduced(inputs, op) : mine, what);
  });
}

void broadcast(Rank& rank) {
  const auto group = rank.group();
  int root = 0;
  for_each_move([&](auto dtype, auto size, auto salt, const auto& what) {
    root = (root + 1) % rank.world();
    at::Tensor tensor = input_of(rank.rank(), size, dtype, salt);
    group->broadcast(tensor, root)->wait();
    expect_equal(tensor, input_of(root, size, dtype, salt), what);
  });
}

void all_gather(Rank& rank) {
  const auto group = rank.group();
  for_each_move([&](auto dtype, auto size, auto salt, const auto& what) {
    const auto inputs = inputs_of_all(rank, size, dtype, salt);
    const auto& mine = inputs[static_cast<std::size_t>(rank.rank())];
    std::vector<at::Tensor> outputs;
    for (int peer = 0; peer < rank.world(); ++peer) outputs.push_back(at::empty({size}, mine.options()));
    group->all_gather(outputs, mine)->wait();
    for (std::size_t peer = 0; peer < outputs.size(); ++peer) expect_equal(outputs[peer], inputs[peer], what);
    at::Tensor output = at::empty({rank.world() * size}, mine.options());
    group->all_gather_into_tensor(output, mine)->wait();
    expect_equal(output, at::cat(inputs), what + " into tensor");
  });
}

void gather_and_scatter(Rank& rank) {
  const auto group = rank.group();
  int root = 0;
  for_each_move([&](auto dtype, auto size, auto salt, const auto& what) {
    root = (root + 1) % rank.world();
    const auto inputs = inputs_of_all(rank, size, dtype, salt);
    const auto& mine = inputs[static_cast<std::size_t>(rank.rank())];
    std::vector<at::Tensor> outputs;
    for (int peer = 0; peer < rank.world() && rank.rank() == root; ++peer) {
      outputs.push_back(at::empty({size}, mine.options()));
    }
    group->gather(outputs, mine, root)->wait();
    for (std::size_t peer = 0; peer < outputs.size(); ++peer)
      expect_equal(outputs[peer], inputs[peer], "gather " + what);
    at::Tensor output = at::empty({size}, mine.options());
    group->scatter(output, rank.rank() == root ? inputs : std::vector<at::Tensor>(), root)->wait();
    expect_equal(output, mine, "scatter " + what);
  });
}

void reduce_scatter(Rank& rank) {
  const auto group = rank.group();
  for_each_reduction([&](auto dtype, auto op, auto size, auto salt, const auto& what) {
    // Rank r sends part p = input_of(r, size, salt + p); rank p receives the reduction of the parts p.
    std::vector<at::Tensor> parts;
    std::vector<at::Tensor> for_me;
    for (int peer = 0; peer < rank.world(); ++peer) {
      const auto part_salt = [salt](int part) { return salt * 100 + static_cast<std::uint64_t>(part); };
      parts.push_back(input_of(rank.rank(), size, dtype, part_salt(peer), op == ReduceOp::product));
      for_me.push_back(input_of(peer, size, dtype, part_salt(rank.rank()), op == ReduceOp::product));
    }
    at::Tensor output = at::empty({size}, parts.front().options());
    group->reduce_scatter(output, parts, op)->wait();
    expect_equal(output, reduced(for_me, op), what);
    output.zero_();
    group->reduce_scatter_tensor(output, at::cat(parts), op)->wait();
    expect_equal(output, reduced(for_me, op), what + " tensor");
  });
}

void all_to_all(Rank& rank) {
  const auto group = rank.group();
  const auto world = static_cast<std::size_t>(rank.world());
  for_each_move([&](auto dtype, auto size, auto salt, const auto& what) {
    // Rank r sends (r + p) % 3 × size elements to rank p: uneven, none at times.
    const auto message = [&](int from, int to) {
      return input_of(from * 10 + to, (from + to) % 3 * std::min<std::int64_t>(size, 1023), dtype, salt);
    };
    std::vector<at::Tensor> inputs(world);
    std::vector<at::Tensor> expected(world);
    std::vector<at::Tensor> outputs(world);
    std::vector<std::int64_t> in_splits(world);
    std::vector<std::int64_t> out_splits(world);
    for (std::size_t peer = 0; peer < world; ++peer) {
      inputs[peer] = message(rank.rank(), static_cast<int>(peer));
      expected[peer] = message(static_cast<int>(peer), rank.rank());
      outputs[peer] = at::empty_like(expected[peer]);
      in_splits[peer] = inputs[peer].numel();
      out_splits[peer] = expected[peer].numel();
    }
    group->all_to_all(outputs, inputs)->wait();
    for (std::size_t peer = 0; peer < world; ++peer) expect_equal(outputs[peer], expected[peer], what);
    at::Tensor output = at::empty_like(at::cat(expected));
    group->all_to_all_single(output, at::cat(inputs), out_splits, in_splits)->wait();
    expect_equal(output, at::cat(expected), what + " single, uneven");
    const auto even = input_of(rank.rank(), rank.world() * 3, dtype, salt).view({rank.world(), 3});
    at::Tensor column = at::empty_like(even);
    group->all_to_all_single(column, even)->wait();
    for (int peer = 0; peer < rank.world(); ++peer) {
      const auto theirs = input_of(peer, rank.world() * 3, dtype, salt).view({rank.world(), 3});
      expect_equal(column[peer], theirs[rank.rank()], what + " single, even");
    }
  });
}

void send_and_recv(Rank& rank) {
  const auto group = rank.group();
  const int next = (rank.rank() + 1) % rank.world();
  const int previous = (rank.rank() + rank.world() - 1) % rank.world();
  for_each_move([&](auto dtype, auto size, auto salt, const auto& what) {
    const auto mine = input_of(rank.rank(), size, dtype, salt);
    at::Tensor received = at::empty_like(mine);
    // All send before they receive: a send must not wait for this rank's own receive.
    const auto sent = group->send(mine, next);
    group->recv(received, previous)->wait();
    sent->wait();
    expect_equal(received, input_of(previous, size, dtype, salt), what);
  });
  // Tags keep messages apart, whatever the order in which they are received.
  std::vector<WorkPtr> works;
  for (int tag = 0; tag < 4; ++tag)
    works.push_back(group->send(at::full({tag + 1}, rank.rank() * 10 + tag, at::kFloat), next, tag));
  for (int tag = 3; tag >= 0; --tag) {
    at::Tensor received = at::empty({tag + 1});
    group->recv(received, previous, tag)->wait();
    expect_equal(received, at::full({tag + 1}, previous * 10 + tag, at::kFloat),
                 "tag " + std::to_string(tag));
  }
  for (const auto& work : works) work->wait();
  // Messages of one tag keep their order.
  works.clear();
  for (int i = 0; i < 5; ++i) works.push_back(group->send(at::full({3}, i, at::kInt), next, 7));
  for (int i = 0; i < 5; ++i) {
    at::Tensor received = at::empty({3}, at::kInt);
    group->recv(received, previous, 7)->wait();
    expect_equal(received, at::full({3}, i, at::kInt), "order");
  }
  for (const auto& work : works) work->wait();
}

void barrier(Rank& rank) {
  const auto group = rank.group();
  group->barrier()->wait();
  if (rank.last()) {
    std::this_thread::sleep_for(milliseconds(200));
    rank.tell("late one came");
  }
  const auto begin = Clock::now();
  group->barrier()->wait();
  if (!rank.last()) expect(Clock::now() - begin > milliseconds(100), "a barrier ended before all had come");
  group->monitored_barrier();
}

void coalesced(Rank& rank) {
  const auto group = rank.group();
  for (const auto dtype : all_dtypes()) {
    std::vector<at::Tensor> tensors;
    for (const std::int64_t size : {5, 0, 1023, 1}) tensors.push_back(input_of(rank.rank(), size, dtype, 11));
    tensors.push_back(input_of(rank.rank(), 12, dtype, 12).view({3, 4}).t());
    group->all_reduce_coalesced(tensors)->wait();
    for (const auto& tensor : tensors) {
      auto inputs = inputs_of_all(rank, tensor.numel(), dtype, tensor.dim() == 2 ? 12 : 11);
      if (tensor.dim() == 2) {
        for (auto& input : inputs) input = input.view({3, 4}).t();
      }
      expect_equal(tensor, at::empty_like(tensor).copy_(reduced(inputs, ReduceOp::sum)),
                   label(dtype, tensor.numel()));
    }
  }
}

/** A 6 × 5 view with gaps: neither rows nor columns are adjacent in memory. */
at::Tensor with_gaps(const at::Tensor& values) {
  const at::Tensor view = at::zeros({10, 12}, values.options()).slice(0, 0, 10, 2).slice(1, 0, 12, 2).t();
  view.copy_(values.view({6, 5}));
  expect(!view.is_contiguous(), "the test's tensor should not be contiguous");
  return view;
}

void non_contiguous(Rank& rank) {
  const auto group = rank.group();
  const auto world = static_cast<std::size_t>(rank.world());
  for (const auto dtype : all_dtypes()) {
    const auto inputs = inputs_of_all(rank, 30, dtype, 21);
    const auto& flat = inputs[static_cast<std::size_t>(rank.rank())];
    const auto shaped = [](const at::Tensor& tensor) { return tensor.view({6, 5}); };
    at::Tensor tensor = with_gaps(flat);
    group->all_reduce(tensor)->wait();
    expect_equal(tensor.contiguous(), shaped(reduced(inputs, ReduceOp::sum)), "all_reduce");
    tensor = with_gaps(flat);
    group->reduce(tensor, 0)->wait();
    expect_equal(tensor.contiguous(), shaped(rank.rank() == 0 ? reduced(inputs, ReduceOp::sum) : flat),
                 "reduce");
    tensor = with_gaps(flat);
    group->broadcast(tensor, 1 % rank.world())->wait();
    expect_equal(tensor.contiguous(), shaped(inputs[1 % world]), "broadcast");
    std::vector<at::Tensor> outputs;
    for (std::size_t peer = 0; peer < world; ++peer) outputs.push_back(with_gaps(at::zeros_like(flat)));
    group->all_gather(outputs, with_gaps(flat))->wait();
    for (std::size_t peer = 0; peer < world; ++peer)
      expect_equal(outputs[peer].contiguous(), shaped(inputs[peer]), "all_gather");
    at::Tensor output = with_gaps(at::zeros_like(flat));
    group->reduce_scatter(output, std::vector<at::Tensor>(world, with_gaps(flat)))->wait();
    expect_equal(output.contiguous(), shaped(reduced(inputs, ReduceOp::sum)), "reduce_scatter");
    output = with_gaps(at::zeros_like(flat));
    const auto sent = group->send(with_gaps(flat), (rank.rank() + 1) % rank.world());
    group->recv(output, (rank.rank() + rank.world() - 1) % rank.world())->wait();
    sent->wait();
    expect_equal(output.contiguous(),
                 shaped(inputs[(static_cast<std::size_t>(rank.rank()) + world - 1) % world]), "recv");
  }
}

void nan_and_infinity(Rank& rank) {
  const auto group = rank.group();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    // What the last rank holds beside the others' ones, in both orders of arguments.
    const auto run = [&](double special, ReduceOp op, double expected) {
      for (const int holder : {0, rank.world() - 1}) {
        at::Tensor tensor = at::full({3000}, rank.rank() == holder ? special : 1.0, dtype);
        group->all_reduce(tensor, op)->wait();
        expect_equal(tensor, at::full({3000}, expected, dtype),
                     fmt::format("{} of {}", to_string(op), special));
      }
    };
    run(nan, ReduceOp::sum, nan);
    run(nan, ReduceOp::product, nan);
    run(nan, ReduceOp::min, nan);
    run(nan, ReduceOp::max, nan);
    run(inf, ReduceOp::sum, inf);
    run(-inf, ReduceOp::min, -inf);
    run(inf, ReduceOp::max, inf);
    run(inf, ReduceOp::avg, inf);
    at::Tensor opposite = at::full({10}, rank.rank() == 0 ? inf : -inf, dtype);
    group->all_reduce(opposite)->wait();
    expect_equal(opposite, at::full({10}, nan, dtype), "inf - inf");
  }
}

void repeats_bit_for_bit(Rank& rank) {
  const auto group = rank.group();
  for (const std::int64_t size : {100, 200'003}) {
    at::manual_seed(static_cast<std::uint64_t>(rank.rank()) + 1);
    const at::Tensor mine = at::randn({size});
    at::Tensor first = mine.clone();
    at::Tensor second = mine.clone();
    group->all_reduce(first)->wait();
    group->all_reduce(second)->wait();
    expect(at::equal(first, second), "two sums of the same numbers differ");
    std::vector<at::Tensor> all;
    for (int peer = 0; peer < rank.world(); ++peer) all.push_back(at::empty({size}));
    group->all_gather(all, first)->wait();
    for (const auto& theirs : all) expect(at::equal(first, theirs), "ranks hold different sums");
    if (rank.world() != 2) continue;
    group->all_gather(all, mine)->wait();
    expect(at::equal(first, all[0] + all[1]), "a sum of two ranks is not a + b");
  }
}

constexpr std::array kCollectiveCases{
    Case{"AllReduce", 1, all_reduce},
    Case{"AllReduceAgreed", 1, all_reduce_agreed},
    Case{"Megabytes", 1, megabytes},
    Case{"Reduce", 1, reduce},
    Case{"Broadcast", 1, broadcast},
    Case{"AllGather", 1, all_gather},
    Case{"GatherAndScatter", 1, gather_and_scatter},
    Case{"ReduceScatter", 1, reduce_scatter},
    Case{"AllToAll", 1, all_to_all},
    Case{"SendAndRecv", 2, send_and_recv},
    Case{"Barrier", 2, barrier},
    Case{"Coalesced", 1, coalesced},
    Case{"NonContiguous", 2, non_contiguous},
    Case{"NanAndInfinity", 2, nan_and_infinity},
    Case{"RepeatsBitForBit", 2, repeats_bit_for_bit},
};

}  // namespace

std::span<const Case> collective_cases() { return kCollectiveCases; }

}  // namespace dtorch::conformance
