#include "core/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/error.h"

namespace dtorch {
namespace {

std::vector<std::int64_t> parse_list(const std::string& text) {
  std::vector<std::int64_t> list;
  if (text == "-") return list;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) list.push_back(std::stoll(item));
  return list;
}

std::vector<std::int64_t> indices(std::int64_t size, int world, int rank, std::int64_t epoch,
                                  DistributedSamplerOptions options = {}) {
  DistributedSampler sampler(size, world, rank, options);
  sampler.set_epoch(epoch);
  return sampler.indices();
}

// tests/unit/golden/sampler.tsv was written by torch.utils.data.DistributedSampler of PyTorch 2.11.
TEST(SamplerTest, YieldsPyTorchsListsExactly) {
  std::ifstream golden(DTORCH_GOLDEN_SAMPLER);
  ASSERT_TRUE(golden) << DTORCH_GOLDEN_SAMPLER;
  std::string line;
  std::getline(golden, line);
  int rows = 0;
  while (std::getline(golden, line)) {
    std::istringstream row(line);
    std::int64_t size = 0, seed = 0, epoch = 0;
    int world = 0, rank = 0, shuffle = 0, drop_last = 0;
    std::string list;
    ASSERT_TRUE(row >> size >> world >> rank >> seed >> epoch >> shuffle >> drop_last >> list) << line;
    EXPECT_EQ(indices(size, world, rank, epoch, {shuffle != 0, seed, drop_last != 0}), parse_list(list))
        << line;
    ++rows;
  }
  EXPECT_EQ(rows, 565);
}

// list(DistributedSampler(range(60000), num_replicas=W, rank=R, seed=S)) after set_epoch(E), as sum of (i +
// 1) * list[i].
TEST(SamplerTest, AgreesWithPyTorchOnSixtyThousandItems) {
  struct Case {
    int world, rank;
    std::int64_t seed, epoch, length, weighted_sum;
  };
  for (const auto& [world, rank, seed, epoch, length, weighted_sum] :
       std::vector<Case>{{1, 0, 0, 0, 60000, 53971558475953},
                         {2, 0, 0, 0, 30000, 13543182885351},
                         {2, 1, 0, 4, 30000, 13501255550672},
                         {4, 3, 1234567, 2, 15000, 3383612707973},
                         {7, 6, 42, 3, 8572, 1095274809917},
                         {2, 1, -5, 1, 30000, 13594495952786},
                         {3, 2, 9223372036854775000, 1, 20000, 6033602890853}}) {
    const auto list = indices(60'000, world, rank, epoch, {true, seed, false});
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < list.size(); ++i) sum += static_cast<std::int64_t>(i + 1) * list[i];
    EXPECT_EQ(static_cast<std::int64_t>(list.size()), length);
    EXPECT_EQ(sum, weighted_sum) << "world " << world << " rank " << rank << " seed " << seed << " epoch "
                                 << epoch;
  }
}

TEST(SamplerTest, PadsByWrapping) {
  EXPECT_EQ(indices(5, 4, 0, 0, {.shuffle = false}), (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(indices(5, 4, 3, 0, {.shuffle = false}), (std::vector<std::int64_t>{3, 2}));
  // More ranks than twice the items: the list is repeated several times.
  EXPECT_EQ(indices(2, 7, 6, 0, {.shuffle = false}), (std::vector<std::int64_t>{0}));
}

TEST(SamplerTest, DropsInsteadOfPaddingWhenAsked) {
  EXPECT_EQ(indices(11, 4, 3, 0, {.shuffle = false, .drop_last = true}), (std::vector<std::int64_t>{3, 7}));
  EXPECT_EQ(DistributedSampler(11, 4, 0, {.drop_last = true}).size(), 2);
}

TEST(SamplerTest, RanksTogetherSeeEveryItem) {
  std::vector<int> seen(1000);
  for (int rank = 0; rank < 3; ++rank) {
    for (const auto index : indices(1000, 3, rank, 2)) ++seen[static_cast<std::size_t>(index)];
  }
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), 1002);
  EXPECT_EQ(*std::min_element(seen.begin(), seen.end()), 1);
}

TEST(SamplerTest, AnEpochIsAnotherOrderAndRepeatsItself) {
  EXPECT_NE(indices(100, 2, 0, 0), indices(100, 2, 0, 1));
  EXPECT_EQ(indices(100, 2, 0, 1), indices(100, 2, 0, 1));
  EXPECT_EQ(indices(100, 2, 0, 1), indices(100, 2, 0, 0, {.seed = 1})) << "seed + epoch is what counts";
}

TEST(SamplerTest, NothingToSample) {
  EXPECT_TRUE(indices(0, 3, 1, 0).empty());
  EXPECT_TRUE(indices(2, 3, 0, 0, {.drop_last = true}).empty());
}

TEST(SamplerTest, RefusesImpossibleRanks) {
  for (const auto& [size, world, rank] :
       std::vector<std::tuple<int, int, int>>{{10, 2, 2}, {10, 2, -1}, {10, 0, 0}, {-1, 1, 0}}) {
    try {
      const DistributedSampler sampler(size, world, rank);
      ADD_FAILURE() << size << " " << world << " " << rank;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
    }
  }
}

}  // namespace
}  // namespace dtorch
