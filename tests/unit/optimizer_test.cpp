// Right values: Python's torch.optim.SGD (torch 2.11) on p = [1, -0.3, 0.7, 3e-5] with gradient [0.1, -0.7,
// 1/3, 123.456]·i/7 in steps i = 1 to 4.
#include "core/train/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "core/base/error.h"

namespace dtorch {
namespace {

using ::testing::ElementsAreArray;

std::vector<float> after_four_steps(const OptimizerSpec& spec) {
  auto parameter = torch::tensor({1.0F, -0.3F, 0.7F, 3e-5F}).requires_grad_();
  const auto optimizer = build_optimizer(spec, {parameter});
  const auto gradient = torch::tensor({0.1F, -0.7F, static_cast<float>(1.0 / 3), 123.456F});
  for (int i = 1; i <= 4; ++i) {
    parameter.mutable_grad() = gradient * i / 7;
    optimizer->step();
  }
  const auto result = parameter.detach();
  return {result.const_data_ptr<float>(), result.const_data_ptr<float>() + 4};
}

TEST(OptimizerTest, PlainSgdIsPythonsBitForBit) {
  EXPECT_THAT(after_four_steps({.lr = 0.1}),
              ElementsAreArray({0x1.f8af8cp-1f, -0x1.99999ap-3f, 0x1.4e04dep-1f, -0x1.1a2f48p+4f}));
}

TEST(OptimizerTest, MomentumIsPythonsBitForBit) {
  EXPECT_THAT(after_four_steps({.lr = 0.1, .momentum = 0.9}),
              ElementsAreArray({0x1.f26ceap-1f, -0x1.d49f98p-4f, 0x1.3926c2p-1f, -0x1.05da7cp+5f}));
}

TEST(OptimizerTest, NesterovWithWeightDecayIsPythonsBitForBit) {
  EXPECT_THAT(after_four_steps({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
              ElementsAreArray({0x1.f323a8p-1f, -0x1.51800cp-3f, 0x1.43b4c2p-1f, -0x1.786518p+4f}));
}

TEST(OptimizerTest, DampeningIsPythonsBitForBit) {
  EXPECT_THAT(after_four_steps({.lr = 0.3, .momentum = 0.7, .dampening = 0.2, .weight_decay = 0.1}),
              ElementsAreArray({0x1.847f16p-1f, 0x1.27d5eap-3f, 0x1.8a247cp-2f, -0x1.123ef4p+6f}));
}

TEST(OptimizerTest, CrossEntropyIsTheMeanOverTheBatch) {
  const auto loss =
      build_loss({})(torch::tensor({{0.3F, -1.2F, 2.0F}, {5.0F, 4.9F, 0.1F}}), torch::tensor({2L, 1L}));
  EXPECT_NEAR(loss.item<double>(), 0x1.e66264p-2, 1e-6);
}

TEST(OptimizerTest, ContradictionsAndUnknownTypesAreSpecErrors) {
  const auto kind_of = [](const OptimizerSpec& spec) {
    try {
      build_optimizer(spec, {torch::zeros({1})});
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::training;
  };
  EXPECT_EQ(kind_of({.nesterov = true}), ErrorKind::spec);
  EXPECT_EQ(kind_of({.momentum = 0.9, .dampening = 0.1, .nesterov = true}), ErrorKind::spec);
  EXPECT_EQ(kind_of({.type = "adam"}), ErrorKind::spec);
  EXPECT_THROW(build_loss({.type = "mse"}), Error);
}

}  // namespace
}  // namespace dtorch
