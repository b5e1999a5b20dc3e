#include "core/data/loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <thread>

#include "core/base/error.h"
#include "core/data/batch.h"

namespace dtorch {
namespace {

class MadeUpDataset : public ImageDataset {
 public:
  MadeUpDataset(at::Tensor images, at::Tensor labels)
      : images_(std::move(images)), labels_(std::move(labels)) {}
  std::int64_t size() const override { return labels_.size(0); }
  const at::Tensor& images() const override { return images_; }
  const at::Tensor& labels() const override { return labels_; }

 private:
  at::Tensor images_;
  at::Tensor labels_;
};

// Item i has label i, and images that use every byte.
std::shared_ptr<const ImageDataset> made_up(std::int64_t count, std::vector<std::int64_t> item = {5, 7}) {
  auto shape = item;
  shape.insert(shape.begin(), count);
  const auto items = std::accumulate(item.begin(), item.end(), count, std::multiplies<>());
  auto images = at::arange(items).mul(37).remainder(256).to(at::kByte).reshape(shape);
  return std::make_shared<MadeUpDataset>(images.contiguous(), at::arange(count));
}

std::vector<std::int64_t> backwards(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.rbegin(), indices.rend(), 0);
  return indices;
}

// What the batches of an epoch must be, made by libtorch.
void expect_epoch(DataLoader& loader, const ImageDataset& dataset, const std::vector<std::int64_t>& indices,
                  std::int64_t batch_size) {
  loader.start(indices);
  const auto order = at::tensor(indices, at::kLong);
  std::int64_t done = 0;
  while (const auto batch = loader.next()) {
    const auto count = std::min(batch_size, order.size(0) - done);
    const auto chosen = order.narrow(0, done, count);
    ASSERT_TRUE(at::equal(batch->inputs, dataset.images().index_select(0, chosen).to(at::kFloat).div(255)));
    ASSERT_TRUE(at::equal(batch->targets, dataset.labels().index_select(0, chosen)));
    done += count;
  }
  EXPECT_EQ(done, order.size(0));
  EXPECT_FALSE(loader.next().has_value());
}

TEST(LoaderTest, GivesTheBatchesInOrderWhateverTheNumberOfWorkers) {
  const auto dataset = made_up(1003);
  for (const int workers : {0, 1, 2, 5}) {
    DataLoader loader(dataset, {.batch_size = 10, .workers = workers});
    EXPECT_EQ(loader.batches(1003), 101);
    for (int epoch = 0; epoch < 3; ++epoch) expect_epoch(loader, *dataset, backwards(1003 - epoch), 10);
  }
}

TEST(LoaderTest, DividesEveryByteAsTorchDoes) {
  auto images = at::arange(256).to(at::kByte).reshape({1, 16, 16});
  DataLoader loader(std::make_shared<MadeUpDataset>(images, at::zeros({1}, at::kLong)), {.batch_size = 1});
  loader.start({0});
  EXPECT_TRUE(at::equal(loader.next()->inputs, images.to(at::kFloat).div(255)));
}

TEST(LoaderTest, ABatchHasTheItemsShape) {
  DataLoader loader(made_up(100, {3, 4, 2}), {.batch_size = 32, .workers = 1});
  loader.start(backwards(100));
  const auto batch = *loader.next();
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<std::int64_t>{32, 3, 4, 2}));
  EXPECT_EQ(batch.inputs.scalar_type(), at::kFloat);
  EXPECT_EQ(batch.targets.sizes(), (std::vector<std::int64_t>{32}));
  EXPECT_EQ(batch.targets.scalar_type(), at::kLong);
}

TEST(LoaderTest, LeavesOutAShortBatchWhenAsked) {
  for (const int workers : {0, 2}) {
    DataLoader loader(made_up(25), {.batch_size = 10, .workers = workers, .drop_last = true});
    EXPECT_EQ(loader.batches(25), 2);
    loader.start(backwards(25));
    EXPECT_EQ(loader.next()->targets.size(0), 10);
    EXPECT_EQ(loader.next()->targets.size(0), 10);
    EXPECT_FALSE(loader.next());
    loader.start(backwards(9));
    EXPECT_FALSE(loader.next());
  }
}

TEST(LoaderTest, GivesNothingBeforeAnEpochOrOverNoIndices) {
  DataLoader loader(made_up(5), {});
  EXPECT_FALSE(loader.next());
  loader.start({});
  EXPECT_FALSE(loader.next());
}

TEST(LoaderTest, KeepsWhatTheUserStillHolds) {
  const auto dataset = made_up(200);
  DataLoader loader(dataset, {.batch_size = 10, .workers = 2});
  loader.start(backwards(200));
  std::vector<at::Tensor> views;    // of the inputs: the batch itself is dropped
  std::vector<at::Tensor> targets;  // themselves
  while (const auto batch = loader.next()) {
    views.push_back(batch->inputs.flatten(1));
    targets.push_back(batch->targets);
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_TRUE(at::equal(views[i],
                          dataset->images().index_select(0, targets[i]).to(at::kFloat).div(255).flatten(1)));
    EXPECT_EQ(targets[i][0].item<std::int64_t>(), 199 - static_cast<std::int64_t>(i) * 10);
  }
}

TEST(LoaderTest, UsesTheSameFewBuffersAgain) {
  DataLoader loader(made_up(1000), {.batch_size = 10, .workers = 1});
  std::set<const void*> buffers;
  for (int epoch = 0; epoch < 3; ++epoch) {
    loader.start(backwards(1000));
    while (const auto batch = loader.next()) buffers.insert(batch->inputs.const_data_ptr());
  }
  EXPECT_LE(buffers.size(), 6U) << "of 300 batches";
}

TEST(LoaderTest, WhatAUserDoesToABatchDoesNotComeBack) {
  const auto dataset = made_up(100);
  DataLoader loader(dataset, {.batch_size = 10, .workers = 0});
  loader.start(backwards(100));
  {
    auto first = *loader.next();
    first.inputs.requires_grad_();
    auto second = *loader.next();
    second.inputs.resize_({2, 2});
    auto third = *loader.next();
    third.inputs.fill_(-1);
  }
  expect_epoch(loader, *dataset, backwards(100), 10);
  loader.start(backwards(100));
  while (const auto batch = loader.next()) EXPECT_FALSE(batch->inputs.requires_grad());
}

TEST(LoaderTest, RethrowsAWorkersFaultInItsPlace) {
  for (const int workers : {0, 1, 3}) {
    DataLoader loader(made_up(100), {.batch_size = 10, .workers = workers});
    auto indices = backwards(100);
    indices[35] = 100;
    loader.start(indices);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(loader.next());
    for (int i = 0; i < 2; ++i) {
      try {
        loader.next();
        ADD_FAILURE() << "no error with " << workers << " workers";
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "index 100 of a dataset with 100 items");
      }
    }
    loader.start(backwards(100));
    EXPECT_EQ(loader.next()->targets[0].item<std::int64_t>(), 99) << "the next epoch is whole again";
  }
}

TEST(LoaderTest, AnEpochMayBeLeftUnfinished) {
  const auto dataset = made_up(10'000);
  DataLoader loader(dataset, {.batch_size = 10, .workers = 3});
  for (int i = 0; i < 50; ++i) {
    loader.start(backwards(10'000 - i));
    for (int j = 0; j < i % 7; ++j)
      EXPECT_EQ(loader.next()->targets[0].item<std::int64_t>(), 10'000 - i - 1 - 10 * j);
  }
  // And the loader destroyed in the middle of one.
}

TEST(LoaderTest, CountsTheTimeItBlocks) {
  DataLoader inline_loader(made_up(1000), {.batch_size = 1000, .workers = 0});
  inline_loader.start(backwards(1000));
  EXPECT_EQ(inline_loader.time_waiting().count(), 0);
  inline_loader.next();
  EXPECT_GT(inline_loader.time_waiting().count(), 0);
}

TEST(LoaderTest, RefusesWhatCannotWork) {
  const auto refused = [](auto&& action) {
    try {
      action();
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::usage;
    }
  };
  EXPECT_TRUE(refused([] { DataLoader(made_up(5), {.batch_size = 0}); }));
  EXPECT_TRUE(refused([] { DataLoader(made_up(5), {.workers = -1}); }));
  EXPECT_TRUE(refused([] { DataLoader(made_up(5), {.workers = 65}); }));
  EXPECT_TRUE(refused([] {
    DataLoader(std::make_shared<MadeUpDataset>(at::zeros({5, 2}), at::zeros({5}, at::kLong)), {});
  })) << "float images";
  EXPECT_TRUE(refused([] {
    DataLoader(std::make_shared<MadeUpDataset>(at::zeros({4, 2}, at::kByte), at::zeros({5}, at::kLong)), {});
  })) << "fewer images than labels";
  EXPECT_TRUE(refused([] {
    DataLoader(std::make_shared<MadeUpDataset>(at::zeros({2, 5}, at::kByte).t(), at::zeros({5}, at::kLong)),
               {});
  })) << "not contiguous";
}

}  // namespace
}  // namespace dtorch
