// Right values: Python's torch 2.11, torch.manual_seed(7); fc1 = Linear(4, 3); fc2 = Linear(3, 2).
#include "core/train/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "core/base/error.h"

namespace dtorch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec small(const char* activation) {
  return {.type = "mlp", .layers = {4, 3, 2}, .activation = activation};
}

std::vector<float> values(const at::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

at::Tensor input() { return torch::tensor({{0.0F, 0.25F, 0.5F, 1.0F}, {-1.0F, 0.75F, -0.5F, 0.125F}}); }

TEST(ModelTest, SeedGivesPythonsInitialWeightsBitForBit) {
  at::manual_seed(7);
  const auto model = build_model(small("relu"));
  const auto parameters = model.module->named_parameters();
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.key());
  EXPECT_THAT(names, ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_THAT(values(parameters["fc1.weight"]),
              ElementsAre(0x1.1e15ep-5f, -0x1.346cfp-2f, 0x1.4610c8p-3f, 0x1.414fbp-3f, -0x1.11a6f4p-2f,
                          -0x1.32f2dp-4f, -0x1.2bf1a4p-2f, 0x1.09b338p-3f, -0x1.13d52p-3f, 0x1.67b2e4p-2f,
                          0x1.6b7638p-2f, 0x1.a142ep-5f));
  EXPECT_THAT(values(parameters["fc1.bias"]), ElementsAre(-0x1.b48dcp-3f, -0x1.2cba9cp-2f, -0x1.c1d24p-5f));
  EXPECT_THAT(values(parameters["fc2.weight"]), ElementsAre(-0x1.4cc3acp-3f, 0x1.0494acp-2f, -0x1.f8d44p-2f,
                                                            0x1.15d1d2p-1f, -0x1.cfc228p-2f, 0x1.c4b836p-2f));
  EXPECT_THAT(values(parameters["fc2.bias"]), ElementsAre(-0x1.9aa9b6p-4f, 0x1.301c34p-2f));
}

TEST(ModelTest, BuildingDrawsAsManyRandomNumbersAsPython) {
  at::manual_seed(7);
  build_model(small("none"));
  EXPECT_EQ(at::empty({}, at::kLong).random_().item<std::int64_t>(), 6102906941636697004);
}

void expect_forward(const char* activation, const std::vector<float>& expected) {
  at::manual_seed(7);
  const auto scores = build_model(small(activation)).forward(input());
  EXPECT_EQ(scores.sizes(), (std::vector<std::int64_t>{2, 2}));
  const auto got = values(scores);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
}

TEST(ModelTest, ForwardIsPythons) {
  expect_forward("none", {-0x1.37b48cp-2f, 0x1.1116d6p-1f, -0x1.3f7014p-4f, 0x1.81c4c8p-5f});
  expect_forward("relu", {-0x1.d52b58p-3f, 0x1.a66982p-2f, -0x1.51683p-3f, 0x1.58eb3ep-2f});
}

TEST(ModelTest, FlattensImages) {
  at::manual_seed(7);
  const auto model = build_model(small("none"));
  EXPECT_TRUE(model.forward(input().reshape({2, 2, 2})).equal(model.forward(input())));
}

TEST(ModelTest, DescriptionMatchesTheModelThatIsBuilt) {
  const auto layers = describe_model({.type = "mlp", .layers = {784, 512, 10}, .activation = "relu"});
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].name, "fc1");
  EXPECT_EQ(layers[0].description, "Linear(784, 512)");
  EXPECT_EQ(layers[0].parameters, 401920);
  EXPECT_EQ(layers[1].parameters, 5130);
}

DatasetInfo digits() {
  DatasetInfo info;
  info.type = "mnist";
  info.origin = "data/mnist";
  info.train_size = 60000;
  info.test_size = 10000;
  info.item_shape = {28, 28};
  info.classes = 10;
  return info;
}

std::vector<SpecProblem> misfits(std::vector<std::int64_t> layers, const DatasetInfo& info) {
  return model_misfits({.type = "mlp", .layers = std::move(layers), .activation = "none"}, info);
}

TEST(ModelTest, AllMisfitsAreToldWithTheKeysToBlame) {
  const auto problems = misfits({700, 64, 9}, digits());
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].key, "model.layers.0");
  EXPECT_EQ(problems[0].message,
            "the model takes 700 inputs, an image of mnist (data/mnist) has 28×28 = 784");
  EXPECT_EQ(problems[0].help, "make the first width 784");
  EXPECT_EQ(problems[1].key, "model.layers.2");
  EXPECT_EQ(problems[1].message, "the model has 9 outputs, mnist (data/mnist) has 10 classes");
  EXPECT_EQ(problems[1].help, "make the last width 10");
  EXPECT_TRUE(misfits({784, 12}, digits()).empty());
}

TEST(ModelTest, ALabelFarBeyondTheOutputsIsADamagedFile) {
  auto info = digits();
  info.type = "idx";
  info.classes = 256;
  info.labels_file = "labels.gz";
  info.label_places.assign(256, "");
  for (std::size_t label = 0; label < 10; ++label) info.label_places[label] = "offset 8";
  info.label_places[255] = "unpacked offset 1008";
  const auto damaged = misfits({784, 10}, info);
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(damaged[0].key, "");
  EXPECT_EQ(damaged[0].file, "labels.gz");
  EXPECT_EQ(damaged[0].message,
            "unpacked offset 1008: expected a label from 0 to 9, as the model has 10 outputs, found 255");
  EXPECT_THAT(damaged[0].help, HasSubstr("if it is right, make the last of 'model.layers' 256"));
  // With an item of every class it is the model that lacks outputs.
  info.classes = 11;
  info.label_places.resize(11);
  info.label_places[10] = "offset 9";
  const auto narrow = misfits({784, 10}, info);
  ASSERT_EQ(narrow.size(), 1U);
  EXPECT_EQ(narrow[0].key, "model.layers.1");
}

template <typename Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorKind::training, "");
}

TEST(ModelTest, UnknownTypesAndActivationsAreRefused) {
  EXPECT_EQ(error_of([] {
              build_model({.type = "cnn", .layers = {4, 2}, .activation = "relu"});
            }).kind(),
            ErrorKind::spec);
  EXPECT_EQ(error_of([] { build_model(small("tanh")); }).kind(), ErrorKind::spec);
  EXPECT_EQ(error_of([] { build_model({.type = "mlp", .layers = {4}, .activation = "relu"}); }).kind(),
            ErrorKind::spec);
}

}  // namespace
}  // namespace dtorch
