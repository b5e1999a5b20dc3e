#include "core/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "backends/registry/registry.h"
#include "core/base/error.h"
#include "core/train/evaluate.h"
#include "core/train/step_meter.h"
#include "core/train/stop.h"

namespace dtorch {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

StorePtr memory_store() { return c10::make_intrusive<c10d::HashStore>(); }

ProcessGroupPtr gloo_group(const StorePtr& store, int rank, int world_size) {
  return std::make_shared<ProcessGroup>(find_backend("gloo"), store, rank, world_size, ProcessGroupOptions{});
}

/** Images of 2×2 whose class is the position of their bright pixel. */
class Corners : public ImageDataset {
 public:
  explicit Corners(std::int64_t size)
      : labels_(torch::arange(size) % 4),
        images_(torch::one_hot(labels_, 4).mul(200).to(torch::kByte).reshape({size, 2, 2})) {}
  std::int64_t size() const override { return labels_.size(0); }
  const at::Tensor& images() const override { return images_; }
  const at::Tensor& labels() const override { return labels_; }

 private:
  at::Tensor labels_;
  at::Tensor images_;
};

TrainingData corners(std::int64_t train, std::int64_t test) {
  return {{"corners", "memory", train, test, {2, 2}, 4},
          std::make_shared<Corners>(train),
          std::make_shared<Corners>(test)};
}

JobSpec corners_spec() {
  JobSpec spec;
  spec.model = {.type = "mlp", .layers = {4, 8, 4}, .activation = "relu"};
  spec.loader.batch_size = 16;
  spec.optimizer.lr = 0.5;
  spec.epochs = 3;
  return spec;
}

struct Recorder : MetricsSink {
  void phase(const std::string& phase) override { phases.push_back(phase); }
  void step(const StepRecord& record) override { steps.push_back(record); }
  void loss(double loss) override {
    losses.push_back(loss);
    if (on_loss) on_loss();
  }
  void epoch(const EpochRecord& record) override { epochs.push_back(record); }
  void eval(const EvalRecord& record) override { evals.push_back(record); }
  void result(const ResultRecord& record) override { results.push_back(record); }

  std::vector<std::string> phases;
  std::vector<StepRecord> steps;
  std::vector<double> losses;
  std::vector<EpochRecord> epochs;
  std::vector<EvalRecord> evals;
  std::vector<ResultRecord> results;
  std::function<void()> on_loss;
};

class TrainerTest : public ::testing::Test {
 protected:
  ResultRecord train_alone(const JobSpec& spec, const TrainingData& data) {
    const auto store = memory_store();
    return train(spec, data, gloo_group(store, 0, 1), sink_, {&stop_, &step_, store});
  }

  Error error_of(const JobSpec& spec, const TrainingData& data) {
    try {
      train_alone(spec, data);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return Error(ErrorKind::usage, "");
  }

  Recorder sink_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> step_{0};
};

TEST_F(TrainerTest, LearnsAndReportsEveryEpoch) {
  const auto result = train_alone(corners_spec(), corners(100, 10));
  const std::int64_t steps = 7;  // ceil(100 / 16)
  EXPECT_EQ(result.steps, 3 * steps);
  EXPECT_EQ(step_.load(), 3 * steps);
  ASSERT_EQ(sink_.losses.size(), 3U * steps);
  EXPECT_LT(sink_.losses.back(), sink_.losses.front());
  ASSERT_EQ(sink_.epochs.size(), 3U);
  ASSERT_EQ(sink_.evals.size(), 3U);
  ASSERT_EQ(sink_.results.size(), 1U);
  EXPECT_EQ(result.test_accuracy, sink_.evals.back().accuracy);
  EXPECT_EQ(result.loss, sink_.epochs.back().loss);
  EXPECT_EQ(result.dataset, "corners");
  EXPECT_EQ(result.backend, "gloo");
  EXPECT_EQ(sink_.steps.back().epoch_step, steps);  // a record at each epoch's end
  EXPECT_EQ(sink_.steps.back().steps_per_epoch, steps);
  EXPECT_GT(sink_.steps.back().memory_bytes, 1'000'000U);
  EXPECT_EQ(sink_.phases.back(), "done");
}

TEST_F(TrainerTest, EveryEpochHasAnOrderOfItsOwn) {
  auto spec = corners_spec();
  spec.epochs = 2;
  spec.optimizer.lr = 1e-30;  // the model stays as it is: a loss tells the image
  spec.loader.batch_size = 1;
  train_alone(spec, corners(60, 4));
  ASSERT_EQ(sink_.losses.size(), 120U);
  std::vector<double> first(sink_.losses.begin(), sink_.losses.begin() + 60);
  std::vector<double> second(sink_.losses.begin() + 60, sink_.losses.end());
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

TEST_F(TrainerTest, RanksWithDifferentDataAreToldBeforeTheyTrain) {
  auto spec = corners_spec();
  spec.world_size = 2;
  const auto store = memory_store();
  const auto try_rank = [&](int rank) -> std::string {
    Recorder sink;
    try {
      // The same number of steps on both: nothing else would notice.
      train(spec, corners(64, 10 + 2 * rank), gloo_group(store, rank, 2), sink, {&stop_, &step_, store});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::disagree);
      return error.what();
    }
    return "nothing was thrown";
  };
  std::string other;
  std::thread thread([&] { other = try_rank(1); });
  EXPECT_THAT(try_rank(0), HasSubstr("ranks hold different data"));
  thread.join();
  EXPECT_THAT(other, HasSubstr("12 test images"));
}

TEST_F(TrainerTest, EpochLossIsTheMeanOverSamplesNotOverBatches) {
  auto spec = corners_spec();
  spec.epochs = 1;
  spec.optimizer.lr = 1e-30;  // the model stays as it is
  spec.loader.batch_size = 7;
  spec.sampler.shuffle = false;
  train_alone(spec, corners(9, 4));  // batches of 7 and 2
  ASSERT_EQ(sink_.losses.size(), 2U);
  EXPECT_NEAR(sink_.epochs[0].loss, (7 * sink_.losses[0] + 2 * sink_.losses[1]) / 9, 1e-12);
}

TEST_F(TrainerTest, EvaluatesWhenAskedAndAtTheEnd) {
  auto spec = corners_spec();
  spec.epochs = 5;
  spec.eval.every = 2;
  train_alone(spec, corners(32, 4));
  std::vector<int> after;
  for (const auto& eval : sink_.evals) after.push_back(eval.epoch);
  EXPECT_THAT(after, ::testing::ElementsAre(1, 3, 4));
}

TEST_F(TrainerTest, SameSeedGivesTheSameLossesBitForBit) {
  train_alone(corners_spec(), corners(100, 10));
  const auto first = std::exchange(sink_.losses, {});
  train_alone(corners_spec(), corners(100, 10));
  EXPECT_EQ(sink_.losses, first);
  sink_.losses.clear();
  auto other = corners_spec();
  other.seed = 1;
  train_alone(other, corners(100, 10));
  EXPECT_NE(sink_.losses, first);
}

TEST_F(TrainerTest, DivergenceNamesRankAndStep) {
  auto spec = corners_spec();
  spec.optimizer.lr = 1e38;
  const auto error = error_of(spec, corners(100, 10));
  EXPECT_EQ(error.kind(), ErrorKind::training);
  EXPECT_THAT(error.what(), HasSubstr("rank 0"));
  EXPECT_THAT(error.what(), HasSubstr("at step " + std::to_string(sink_.losses.size()) + " "));
  EXPECT_THAT(error.help(), HasSubstr("optimizer.lr"));
  EXPECT_FALSE(std::isfinite(sink_.losses.back()));
}

TEST_F(TrainerTest, StopRequestEndsAfterTheCurrentSteps) {
  auto spec = corners_spec();
  spec.epochs = 1'000'000;
  sink_.on_loss = [this] { stop_ = true; };
  const auto error = error_of(spec, corners(16, 4));
  EXPECT_EQ(error.kind(), ErrorKind::interrupted);
  EXPECT_EQ(static_cast<std::int64_t>(sink_.losses.size()), step_.load());
  EXPECT_THAT(error.what(), HasSubstr("after step " + std::to_string(step_.load()) + " of 1000000"));
}

TEST_F(TrainerTest, NothingToTrainIsASpecError) {
  const auto error = error_of(corners_spec(), corners(0, 4));
  EXPECT_EQ(error.kind(), ErrorKind::spec);
}

void on_threads(int world_size, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) threads.emplace_back(work, rank);
  for (auto& thread : threads) thread.join();
}

TEST(EvaluateTest, ShardsCoverEveryItemOnce) {
  for (const std::int64_t items : {0, 1, 5, 10'000, 10'007}) {
    for (const int world_size : {1, 2, 3, 7}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const auto shard = evaluation_shard(items, world_size, rank);
        EXPECT_EQ(shard.begin, next);
        EXPECT_LE(shard.end - shard.begin, items / world_size + 1);
        next = shard.end;
      }
      EXPECT_EQ(next, items);
    }
  }
}

TEST(EvaluateTest, UnevenShardsGiveTheSerialResult) {
  const Corners data(23);
  at::manual_seed(3);
  const auto serial_model = build_model(corners_spec().model);
  const auto scores = serial_model.forward(data.images().to(torch::kFloat).div(255));
  const auto correct = scores.argmax(1).eq(data.labels()).sum().item<std::int64_t>();
  const auto loss = at::cross_entropy_loss(scores, data.labels()).item<double>();

  constexpr int kWorld = 3;
  std::vector<Model> models;
  for (int rank = 0; rank < kWorld; ++rank) {
    at::manual_seed(3);
    models.push_back(build_model(corners_spec().model));
  }
  std::vector<Evaluation> results(kWorld);
  const auto store = memory_store();
  on_threads(kWorld, [&](int rank) {
    results[rank] = evaluate(models[rank], data, 5, *gloo_group(store, rank, kWorld));
  });
  for (const auto& result : results) {
    EXPECT_EQ(result.samples, 23);
    EXPECT_EQ(result.accuracy, static_cast<double>(correct) / 23);
    EXPECT_NEAR(result.loss, loss, 1e-6);
    EXPECT_EQ(result.loss, results[0].loss);
  }
}

TEST(StepMeterTest, SharesAndRatesAreOfTheTimeSinceTheLastRecord) {
  StepMeter meter;
  const auto start = Clock::now();
  meter.restart(start, {milliseconds(1000), milliseconds(500)});
  EXPECT_FALSE(meter.count(start + milliseconds(99), 64));
  EXPECT_TRUE(meter.count(start + milliseconds(200), 64));
  StepRecord record;
  meter.fill(record, start + milliseconds(200), {milliseconds(1050), milliseconds(520)});
  EXPECT_NEAR(record.step_ms, 100, 1e-6);
  EXPECT_NEAR(record.samples_per_s, 640, 1e-6);
  EXPECT_NEAR(record.comm_share, 0.25, 1e-9);
  EXPECT_NEAR(record.data_share, 0.1, 1e-9);
  EXPECT_NEAR(record.compute_ms, 65, 1e-6);
  EXPECT_TRUE(meter.empty());
}

/** Stands for a step's gradient exchange: returns once all ranks have come. */
class Exchange {
 public:
  explicit Exchange(int world_size) : world_size_(world_size) {}
  /** False when not all ranks came within five seconds. */
  bool meet() {
    std::unique_lock lock(mutex_);
    const auto round = round_;
    if (++arrived_ == world_size_) {
      arrived_ = 0;
      ++round_;
      wake_.notify_all();
      return true;
    }
    return wake_.wait_for(lock, std::chrono::seconds(5), [&] { return round_ != round; });
  }

 private:
  int world_size_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int arrived_ = 0;
  std::int64_t round_ = 0;
};

/** Trains until the ranks agree to stop; the ranks in `asked` are told after about that time. Steps done, -1:
 * a rank was left alone. */
std::vector<std::int64_t> steps_until_stop(int world_size, const std::vector<int>& asked, unsigned seed) {
  const auto store = memory_store();
  Exchange exchange(world_size);
  std::vector<std::atomic<bool>> requested(world_size);
  std::vector<std::int64_t> steps(world_size, 0);
  std::thread user([&] {
    std::mt19937 random(seed);
    for (const int rank : asked) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
      requested[rank] = true;
    }
  });
  on_threads(world_size, [&](int rank) {
    std::mt19937 random(seed * 31 + rank);
    StopAgreement agreement(store, rank, world_size, &requested[rank], std::chrono::seconds(5));
    while (agreement.begin_step(steps[rank])) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      if (!exchange.meet()) {
        steps[rank] = -1;
        return;
      }
      ++steps[rank];
    }
  });
  user.join();
  return steps;
}

TEST(StopAgreementTest, AllRanksEndAfterTheSameStepWhoeverWasAsked) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (unsigned round = 0; round < 20; ++round) {
    const int world_size = 2 + static_cast<int>(round % 3);
    const auto asked =
        round % 2 == 0 ? std::vector<int>{static_cast<int>(round) % world_size} : std::vector<int>{0, 1};
    const auto steps = steps_until_stop(world_size, asked, seed + round);
    EXPECT_GE(steps[0], 1);
    EXPECT_EQ(std::count(steps.begin(), steps.end(), steps[0]), world_size)
        << ::testing::PrintToString(steps);
  }
}

TEST(StopAgreementTest, RankThatDoesNotAnswerIsNamedAtTheDeadline) {
  std::atomic<bool> requested{true};
  StopAgreement agreement(memory_store(), 0, 3, &requested, milliseconds(100));
  const auto started = Clock::now();
  try {
    for (std::int64_t step = 0; agreement.begin_step(step); ++step)
      std::this_thread::sleep_for(milliseconds(1));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_THAT(error.what(), HasSubstr("ranks 1, 2 did not answer within 100 ms"));
  }
  EXPECT_LT(Clock::now() - started, std::chrono::seconds(5));
}

}  // namespace
}  // namespace dtorch
