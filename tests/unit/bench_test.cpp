// Benchmarks between real ranks: every collective is right, and what is not right is counted.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/bench/measure.h"
#include "core/bench/pattern.h"
#include "core/bench/workload.h"
#include "tests/unit/rank_process.h"

namespace dtorch::bench {
namespace {

using dtorch::testing::run_ranks;
using ::testing::HasSubstr;

BenchRequest small_request() {
  BenchRequest request;
  request.iterations = 3;
  request.warmup = 1;
  return request;
}

TEST(BenchTest, EveryCollectiveIsTimedAndRight) {
  run_ranks(3, [](const ProcessGroupPtr& group) {
    for (const auto& operation : bench_operations()) {
      for (const std::int64_t bytes : {12, 70'000}) {
        const BenchRow row = measure(*group, small_request(), operation, bytes, [] {});
        ASSERT_TRUE(row.out_of_place) << operation << ": " << row.note;
        EXPECT_EQ(row.out_of_place->wrong, 0) << operation;
        EXPECT_EQ(row.in_place.has_value(), traits_of(operation).in_place) << operation;
        if (row.in_place) {
          EXPECT_EQ(row.in_place->wrong, 0) << operation;
        }
        EXPECT_GT(row.out_of_place->min_us, 0);
        EXPECT_LE(row.out_of_place->min_us, row.out_of_place->p50_us);
        EXPECT_LE(row.out_of_place->p50_us, row.out_of_place->max_us);
        if (operation == "barrier") continue;
        EXPECT_EQ(row.bytes, row.elements * 4);
        EXPECT_LE(row.bytes, bytes);
        EXPECT_GT(row.bytes, bytes - 12);
      }
    }
  });
}

TEST(BenchTest, EveryTypeAndReductionIsRight) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    BenchRequest request = small_request();
    for (const char* type :
         {"float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"}) {
      for (const char* op : {"sum", "product", "min", "max", "avg", "band", "bor", "bxor"}) {
        request.type = type;
        request.reduction = op;
        const BenchRow row = measure(*group, request, "allreduce", 4096, [] {});
        const bool is_float = request.type.find("float") != std::string::npos;
        const bool refused =
            request.reduction.front() == 'b' ? is_float : request.reduction == "avg" && !is_float;
        EXPECT_EQ(row.in_place.has_value(), !refused) << type << " " << op << ": " << row.note;
        if (refused) {
          EXPECT_THAT(row.note, HasSubstr("all_reduce: "));
        }
        if (row.in_place) {
          EXPECT_EQ(row.in_place->wrong, 0) << type << " " << op;
        }
      }
    }
  });
}

TEST(BenchTest, ACallThatDidNothingGivesWrongElements) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    for (const auto& operation : bench_operations()) {
      if (operation == "barrier") continue;
      const auto traits = traits_of(operation);
      // Where only one rank gets a result, or has it already, it is the other that must notice.
      const int judge = operation == "broadcast" ? 1 : 0;
      for (const bool in_place : {false, true}) {
        if (in_place && !traits.in_place) continue;
        const auto work = make_workload(*group, {operation, "float32", "sum", 4096, 0, in_place, false});
        work->rewrite();
        if (group->rank() == judge) {
          EXPECT_GT(work->wrong(), 0) << operation << " in place: " << in_place;
        }
      }
    }
  });
}

TEST(BenchTest, TooFewElementsForTheRanksAreSkippedWithAReason) {
  run_ranks(3, [](const ProcessGroupPtr& group) {
    const BenchRow row = measure(*group, small_request(), "allgather", 8, [] {});
    EXPECT_FALSE(row.out_of_place);
    EXPECT_THAT(row.note, HasSubstr("8 B"));
  });
}

TEST(PatternTest, PiecesThatChangePlacesShow) {
  const Pattern pattern(at::kFloat, ReduceOp::sum, 4);
  const at::Tensor whole = pattern.part(1, 0, 4096);
  EXPECT_TRUE(at::equal(whole.narrow(0, 1024, 1024), pattern.part(1, 1024, 1024)));
  EXPECT_FALSE(at::equal(whole.narrow(0, 0, 1024), whole.narrow(0, 1024, 1024)));
  EXPECT_FALSE(at::equal(whole, pattern.part(2, 0, 4096)));
}

TEST(PatternTest, ReducedIsTheSumOfAllRanks) {
  const Pattern pattern(at::kFloat, ReduceOp::sum, 3);
  const at::Tensor sum = pattern.part(0, 5, 600) + pattern.part(1, 5, 600) + pattern.part(2, 5, 600);
  EXPECT_TRUE(at::equal(pattern.reduced(5, 600), sum));
}

}  // namespace
}  // namespace dtorch::bench
