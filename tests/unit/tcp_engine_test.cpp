// The tcp transport's results against serial ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core/bytes/half.h"
#include "core/bytes/reduce_kernels.h"
#include "tests/unit/tcp_ranks.h"

namespace dtorch {
namespace {

constexpr std::array<std::size_t, 6> kSizes{0, 1, 7, 1023, 65537, 1 << 20};

/** Values that differ by rank and place, and whose float sums depend on the order. */
std::vector<float> values(int rank, std::size_t count) {
  std::vector<float> row(count);
  for (std::size_t i = 0; i < count; ++i)
    row[i] = std::sin(static_cast<float>(i % 8191 + 1) * 0.37F + static_cast<float>(rank) * 1.7F);
  return row;
}

std::vector<std::uint16_t> halves(int rank, std::size_t count, DataType type) {
  std::vector<std::uint16_t> row(count);
  const auto source = values(rank, count);
  for (std::size_t i = 0; i < count; ++i)
    row[i] = type == DataType::bfloat16 ? to_bfloat16(source[i]) : to_float16(source[i]);
  return row;
}

template <typename T>
std::vector<T> reduced(const std::vector<std::vector<T>>& rows, DataType type, ReduceOp op) {
  std::vector<T> result(rows.front().size());
  std::vector<const void*> parts;
  for (const auto& row : rows) parts.push_back(row.data());
  reduce_parts(result.data(), parts, result.size(), type, op);
  return result;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

ByteCall reduction(Operation operation, std::uint64_t sequence, std::size_t count, DataType type, ReduceOp op,
                   int root = -1) {
  auto call = call_of(operation, sequence, count, type, root);
  call.signature.reduce = static_cast<std::int8_t>(op);
  return call;
}

template <typename T>
std::vector<std::vector<T>> rows_of(int world, const std::function<std::vector<T>(int)>& row) {
  std::vector<std::vector<T>> rows;
  for (int rank = 0; rank < world; ++rank) rows.push_back(row(rank));
  return rows;
}

class TcpEngineTest : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  std::size_t ranks() const { return static_cast<std::size_t>(world()); }
};

TEST_P(TcpEngineTest, AllReducesInRankOrder) {
  for (const auto count : kSizes) {
    const auto rows = rows_of<float>(world(), [&](int rank) { return values(rank, count); });
    const auto expected = reduced(rows, DataType::float32, ReduceOp::avg);
    run_ranks(world(), [&](ByteCollectives& group, int rank) {
      for (std::uint64_t i = 1; i <= 3; ++i) {
        auto mine = rows[static_cast<std::size_t>(rank)];
        group.all_reduce(mine.data(), count, DataType::float32, ReduceOp::avg,
                         reduction(Operation::all_reduce, i, count, DataType::float32, ReduceOp::avg));
        EXPECT_TRUE(same_bits(mine, expected)) << count << " elements, rank " << rank;
      }
    });
  }
}

TEST_P(TcpEngineTest, SumsNarrowFloatsInFloat32) {
  for (const auto type : {DataType::float16, DataType::bfloat16}) {
    for (const auto count : kSizes) {
      const auto rows = rows_of<std::uint16_t>(world(), [&](int rank) { return halves(rank, count, type); });
      const auto expected = reduced(rows, type, ReduceOp::sum);
      run_ranks(world(), [&](ByteCollectives& group, int rank) {
        auto mine = rows[static_cast<std::size_t>(rank)];
        group.all_reduce(mine.data(), count, type, ReduceOp::sum,
                         reduction(Operation::all_reduce, 1, count, type, ReduceOp::sum));
        EXPECT_TRUE(same_bits(mine, expected)) << count << " elements, rank " << rank;
      });
    }
  }
}

TEST_P(TcpEngineTest, ReducesToTheRootAndLeavesTheOthersAlone) {
  for (const auto count : kSizes) {
    const auto rows = rows_of<float>(world(), [&](int rank) { return values(rank, count); });
    const auto expected = reduced(rows, DataType::float32, ReduceOp::sum);
    run_ranks(world(), [&](ByteCollectives& group, int rank) {
      for (const int root : {0, world() - 1}) {
        auto mine = rows[static_cast<std::size_t>(rank)];
        group.reduce(mine.data(), count, DataType::float32, ReduceOp::sum, root,
                     reduction(Operation::reduce, 1, count, DataType::float32, ReduceOp::sum, root));
        EXPECT_TRUE(same_bits(mine, rank == root ? expected : rows[static_cast<std::size_t>(rank)]));
      }
    });
  }
}

TEST_P(TcpEngineTest, BroadcastsFromAnyRoot) {
  for (const auto count : kSizes) {
    run_ranks(world(), [&](ByteCollectives& group, int rank) {
      for (int root = 0; root < world(); ++root) {
        auto mine = values(rank, count);
        group.broadcast(
            mine.data(), count * sizeof(float), root,
            call_of(Operation::broadcast, static_cast<std::uint64_t>(root), count, DataType::float32, root));
        EXPECT_TRUE(same_bits(mine, values(root, count))) << count << " elements from " << root;
      }
    });
  }
}

TEST_P(TcpEngineTest, GathersEverywhereAndAtARoot) {
  for (const auto count : kSizes) {
    std::vector<float> expected;
    for (int rank = 0; rank < world(); ++rank) {
      const auto row = values(rank, count);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    run_ranks(world(), [&](ByteCollectives& group, int rank) {
      const auto mine = values(rank, count);
      std::vector<float> all(ranks() * count);
      const auto bytes = count * sizeof(float);
      group.all_gather(all.data(), mine.data(), bytes, call_of(Operation::all_gather, 1, count));
      EXPECT_TRUE(same_bits(all, expected)) << count;
      std::vector<float> here(ranks() * count);
      std::copy(mine.begin(), mine.end(),
                here.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank) * count));
      group.all_gather(here.data(), here.data() + static_cast<std::size_t>(rank) * count, bytes,
                       call_of(Operation::all_gather, 2, count));
      EXPECT_TRUE(same_bits(here, expected)) << count;
      const int root = world() - 1;
      std::vector<float> rooted(rank == root ? ranks() * count : 0);
      group.gather(rank == root ? rooted.data() : nullptr, mine.data(), bytes, root,
                   call_of(Operation::gather, 3, count, DataType::float32, root));
      if (rank == root) {
        EXPECT_TRUE(same_bits(rooted, expected)) << count;
      }
      std::vector<float> back(count);
      group.scatter(back.data(), rank == root ? rooted.data() : nullptr, bytes, root,
                    call_of(Operation::scatter, 4, count, DataType::float32, root));
      EXPECT_TRUE(same_bits(back, mine)) << count;
    });
  }
}

TEST_P(TcpEngineTest, ReducesAndScattersInRankOrder) {
  for (const auto count : kSizes) {
    const auto rows = rows_of<float>(world(), [&](int rank) { return values(rank, count * ranks()); });
    const auto all = reduced(rows, DataType::float32, ReduceOp::sum);
    run_ranks(world(), [&](ByteCollectives& group, int rank) {
      auto in = rows[static_cast<std::size_t>(rank)];
      const auto begin = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank) * count);
      const std::vector<float> expected(all.begin() + begin,
                                        all.begin() + begin + static_cast<std::ptrdiff_t>(count));
      std::vector<float> out(count);
      const auto call = [&](std::uint64_t i) {
        return reduction(Operation::reduce_scatter, i, count, DataType::float32, ReduceOp::sum);
      };
      group.reduce_scatter(out.data(), in.data(), count, DataType::float32, ReduceOp::sum, call(1));
      EXPECT_TRUE(same_bits(out, expected)) << count;
      // Into its own part.
      group.reduce_scatter(in.data() + begin, in.data(), count, DataType::float32, ReduceOp::sum, call(2));
      std::copy(in.begin() + begin, in.begin() + begin + static_cast<std::ptrdiff_t>(count), out.begin());
      EXPECT_TRUE(same_bits(out, expected)) << count;
    });
  }
}

TEST_P(TcpEngineTest, ExchangesUnevenPartsBetweenAll) {
  // From rank a to rank b: a little, much, and nothing.
  const auto count_of = [](int a, int b) {
    return a == 1 && b == 0 ? 0 : static_cast<std::size_t>(a * 7001 + b * 13 + 1);
  };
  run_ranks(world(), [&](ByteCollectives& group, int rank) {
    std::vector<std::size_t> in_bytes;
    std::vector<std::size_t> out_bytes;
    std::vector<float> in;
    std::vector<float> expected;
    for (int other = 0; other < world(); ++other) {
      const auto to = values(rank * 10 + other, count_of(rank, other));
      const auto from = values(other * 10 + rank, count_of(other, rank));
      in.insert(in.end(), to.begin(), to.end());
      expected.insert(expected.end(), from.begin(), from.end());
      in_bytes.push_back(to.size() * sizeof(float));
      out_bytes.push_back(from.size() * sizeof(float));
    }
    std::vector<float> out(expected.size());
    group.all_to_all(out.data(), in.data(), out_bytes, in_bytes,
                     call_of(Operation::all_to_all, 1, in.size()));
    EXPECT_TRUE(same_bits(out, expected));
  });
}

TEST_P(TcpEngineTest, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> came{0};
  run_ranks(world(), [&](ByteCollectives& group, int) {
    for (int i = 1; i <= 50; ++i) {
      ++came;
      group.barrier(call_of(Operation::barrier, static_cast<std::uint64_t>(i), 0));
      EXPECT_GE(came.load(), i * world());
    }
  });
}

TEST_P(TcpEngineTest, SendsBesideCollectives) {
  if (world() == 1) return;
  constexpr std::size_t kCount = 300'001;
  run_ranks(world(), [&](ByteCollectives& group, int rank) {
    const int next = (rank + 1) % world();
    const int previous = (rank + world() - 1) % world();
    std::vector<std::thread> threads;
    for (int tag = 0; tag < 2; ++tag) {
      threads.emplace_back([&, tag] {
        for (std::size_t count : {std::size_t{0}, std::size_t{1}, kCount}) {
          const auto mine = values(rank * 2 + tag, count);
          group.send(mine.data(), count * sizeof(float), next, tag, call_of(Operation::send, 0, count));
        }
      });
      threads.emplace_back([&, tag] {
        for (std::size_t count : {std::size_t{0}, std::size_t{1}, kCount}) {
          std::vector<float> theirs(count);
          group.recv(theirs.data(), count * sizeof(float), previous, tag, call_of(Operation::recv, 0, count));
          EXPECT_TRUE(same_bits(theirs, values(previous * 2 + tag, count)));
        }
      });
    }
    for (std::uint64_t i = 1; i <= 20; ++i) {
      std::vector<float> one(1000, 1.0F);
      group.all_reduce(one.data(), one.size(), DataType::float32, ReduceOp::sum,
                       reduction(Operation::all_reduce, i, one.size(), DataType::float32, ReduceOp::sum));
      EXPECT_EQ(one.back(), static_cast<float>(world()));
    }
    for (auto& thread : threads) thread.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, TcpEngineTest, ::testing::Values(1, 2, 3, 5, 8),
                         [](const auto& world) { return "Of" + std::to_string(world.param); });

TEST(TcpEngineWorldsTest, ManyRanksReduceInLogSteps) {
  for (const int world : {9, 10, 16, 33}) {
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{100}, std::size_t{20'000}, std::size_t{1'000'003}}) {
      if (count > 100'000 && world > 10) continue;  // takes long
      const auto rows = rows_of<float>(world, [&](int rank) { return values(rank, count); });
      const auto expected = reduced(rows, DataType::float32, ReduceOp::sum);
      run_ranks(world, [&](ByteCollectives& group, int rank) {
        auto mine = rows[static_cast<std::size_t>(rank)];
        group.all_reduce(mine.data(), count, DataType::float32, ReduceOp::sum,
                         reduction(Operation::all_reduce, 1, count, DataType::float32, ReduceOp::sum));
        EXPECT_TRUE(same_bits(mine, expected)) << world << " ranks, " << count << " elements";
        group.barrier(call_of(Operation::barrier, 2, 0));
      });
    }
  }
}

TEST(TcpEngineWorldsTest, SpeaksIPv6) {
  run_ranks(
      3,
      [](ByteCollectives& group, int) {
        std::vector<float> one(100'000, 1.0F);
        group.all_reduce(one.data(), one.size(), DataType::float32, ReduceOp::sum,
                         reduction(Operation::all_reduce, 1, one.size(), DataType::float32, ReduceOp::sum));
        EXPECT_EQ(one.back(), 3.0F);
      },
      "::1");
}

TEST(TcpEngineWorldsTest, RefusesWhatHasNoMeaningAndGoesOn) {
  run_ranks(2, [](ByteCollectives& group, int) {
    float value = 1;
    EXPECT_THROW(group.all_reduce(&value, 1, DataType::float32, ReduceOp::band,
                                  reduction(Operation::all_reduce, 1, 1, DataType::float32, ReduceOp::band)),
                 Error);
    group.barrier(call_of(Operation::barrier, 2, 0));
  });
}

}  // namespace
}  // namespace dtorch
