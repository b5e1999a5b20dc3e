// Jobs that no machine could hold are refused before they start, with the key that asks for too much.
#include "core/engine/memory_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtorch::engine {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMachine = std::uint64_t{24} << 30;

DatasetInfo images() {
  DatasetInfo info;
  info.train_size = 60000;
  info.test_size = 10000;
  info.item_shape = {28, 28};
  info.classes = 10;
  return info;
}

JobSpec job(std::vector<std::int64_t> layers) {
  JobSpec spec;
  spec.model.layers = std::move(layers);
  return spec;
}

/** The key to blame; empty when the job fits. */
std::string blamed(const JobSpec& spec, int local_ranks = 1, std::uint64_t limit = kMachine) {
  const auto problems = memory_problems(spec, images(), local_ranks, limit);
  return problems.empty() ? "" : problems.front().key;
}

TEST(MemoryNeedTest, CountsWhatTrainingHolds) {
  auto spec = job({784, 512, 10});
  const double parameters = 785 * 512 + 513 * 10;
  EXPECT_EQ(memory_need(spec, images()).model, parameters * 4 * 2) << "parameters and gradients";
  spec.optimizer.momentum = 0.9;
  EXPECT_EQ(memory_need(spec, images()).model, parameters * 4 * 3);
  // Measured: a rank of this job has 125 MB of its own.
  EXPECT_NEAR(memory_need(spec, images()).total(), 125e6, 25e6);
}

TEST(MemoryNeedTest, BlamesTheKeyThatAsksForTooMuch) {
  EXPECT_EQ(blamed(job({784, 512, 10})), "");
  EXPECT_EQ(blamed(job({784, 16777216, 16777216, 10})), "model.layers");
  auto batches = job({784, 40000, 10});
  EXPECT_EQ(blamed(batches), "");
  batches.loader.batch_size = 16777216;
  EXPECT_EQ(blamed(batches), "") << "a batch has no more samples than there are: 60000";
  EXPECT_EQ(blamed(batches, 1, std::uint64_t{8} << 30), "loader.batch_size");
  auto evaluation = job({784, 400000, 10});
  evaluation.eval.batch_size = 10000;
  EXPECT_EQ(blamed(evaluation, 1, std::uint64_t{8} << 30), "eval.batch_size");
  auto many = job({784, 512, 10});
  many.world_size = 4096;
  EXPECT_EQ(blamed(many, 4096), "world_size");
  EXPECT_EQ(blamed(many, 64), "") << "the others run elsewhere";
}

TEST(MemoryNeedTest, SizesBeyondAnyMachineDoNotOverflow) {
  auto spec = job(std::vector<std::int64_t>(1000, 16777216));
  const auto problems = memory_problems(spec, images(), 1, kMachine);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0].message, HasSubstr("it has 24 GiB"));
  EXPECT_THAT(problems[0].message, HasSubstr("EiB"));
}

TEST(MemoryNeedTest, AnUnknownLimitRefusesNothing) {
  EXPECT_EQ(blamed(job({784, 16777216, 16777216, 10}), 1, 0), "");
}

}  // namespace
}  // namespace dtorch::engine
