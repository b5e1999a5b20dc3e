#include "core/parallel/buckets.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace dtorch {
namespace {

using Indices = std::vector<std::size_t>;

std::vector<Indices> members(const std::vector<BucketPlan>& plans) {
  std::vector<Indices> all;
  for (const auto& plan : plans) all.push_back(plan.parameters);
  return all;
}

TEST(BucketsTest, FillInReverseOrderAndCloseOnceTheCapIsReached) {
  const std::vector<GradientShape> shapes{{4, 4, 0}, {4, 4, 0}, {4, 4, 0}, {4, 4, 0}, {4, 4, 0}};
  EXPECT_EQ(members(plan_buckets(shapes, 16, 32)), (std::vector<Indices>{{4}, {3, 2}, {1, 0}}));
}

TEST(BucketsTest, NeverSplitAGradientThatExceedsTheCap) {
  const std::vector<GradientShape> shapes{{1, 4, 0}, {1000, 4, 0}, {1, 4, 0}};
  EXPECT_EQ(members(plan_buckets(shapes, 8, 8)), (std::vector<Indices>{{2, 1}, {0}}));
}

TEST(BucketsTest, TheTutorialsModelHasOneBucketUnderTheDefaults) {
  // fc1.weight, fc1.bias, fc2.weight, fc2.bias: the first megabyte is not full before fc1.weight arrives.
  const std::vector<GradientShape> shapes{{784 * 512, 4, 0}, {512, 4, 0}, {5120, 4, 0}, {10, 4, 0}};
  EXPECT_EQ(members(plan_buckets(shapes, 1 << 20, 25 << 20)), (std::vector<Indices>{{3, 2, 1, 0}}));
}

TEST(BucketsTest, KeepKindsApartAndOrderBucketsByTheirLastGradient) {
  const std::vector<GradientShape> shapes{{8, 4, 0}, {8, 2, 1}, {8, 4, 0}, {8, 2, 1}};
  EXPECT_EQ(members(plan_buckets(shapes, 1000, 1000)), (std::vector<Indices>{{3, 1}, {2, 0}}));
  EXPECT_EQ(members(plan_buckets(shapes, 1, 1)), (std::vector<Indices>{{3}, {2}, {1}, {0}}));
}

TEST(BucketsTest, SlicesStartOnCacheLinesAndDoNotOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<GradientShape> shapes;
    for (int i = 0; i < 40; ++i) {
      const int kind = static_cast<int>(random() % 3);
      shapes.push_back({static_cast<std::int64_t>(random() % 200), kind == 0 ? 2 : 4 * kind, kind});
    }
    Indices seen;
    for (const auto& plan : plan_buckets(shapes, 256, 2048)) {
      std::int64_t end = 0;
      for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
        const auto& shape = shapes[plan.parameters[i]];
        EXPECT_EQ(plan.offsets[i] * shape.element_size % 64, 0);
        EXPECT_GE(plan.offsets[i], end);
        EXPECT_EQ(shape.kind, shapes[plan.parameters[0]].kind);
        end = plan.offsets[i] + shape.elements;
        seen.push_back(plan.parameters[i]);
      }
      EXPECT_EQ(plan.elements, end);
    }
    std::sort(seen.begin(), seen.end());
    Indices all(shapes.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all);
  }
}

TEST(BucketsTest, NoParametersMakeNoBuckets) { EXPECT_TRUE(plan_buckets({}, 1, 1).empty()); }

}  // namespace
}  // namespace dtorch
