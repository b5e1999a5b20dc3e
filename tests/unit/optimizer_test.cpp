// Right values: Python's torch.optim.SGD (torch 2.11) on p = [1, -0.3, 0.7, 3e-5] with gradient [0.1, -0.7,
// 1/3, 123.456]·i/7 in steps i = 1 to 4.
#include "core/train/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>

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

// libtorch's SGD makes its step in single operations, as Python's does.
torch::optim::SGDOptions options_of(const OptimizerSpec& spec) {
  return torch::optim::SGDOptions(spec.lr)
      .momentum(spec.momentum)
      .dampening(spec.dampening)
      .weight_decay(spec.weight_decay)
      .nesterov(spec.nesterov);
}

const std::vector<OptimizerSpec> kKindsOfSgd = {
    {.lr = 0.1},
    {.lr = 0.05, .weight_decay = 0.01},
    {.lr = 0.05, .momentum = 0.9},
    {.lr = 0.3, .momentum = 0.7, .dampening = 0.2, .weight_decay = 0.1},
    {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.001, .nesterov = true}};

/** Both optimizers make steps over parameters of these values with the same random gradients. */
void expect_same_steps(const OptimizerSpec& spec, const std::vector<at::Tensor>& values,
                       const std::function<bool(int step, std::size_t parameter)>& has_gradient) {
  std::vector<at::Tensor> ours, theirs;
  for (const auto& value : values) {
    ours.push_back(value.detach().clone().requires_grad_());
    theirs.push_back(value.detach().clone().requires_grad_());
  }
  const auto optimizer = build_optimizer(spec, ours);
  torch::optim::SGD oracle(theirs, options_of(spec));
  for (int step = 0; step < 6; ++step) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto gradient = has_gradient(step, i) ? at::randn_like(values[i]) : at::Tensor();
      ours[i].mutable_grad() = gradient;
      theirs[i].mutable_grad() = gradient.defined() ? gradient.clone() : at::Tensor();
    }
    optimizer->step();
    oracle.step();
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(at::equal(ours[i], theirs[i])) << "parameter " << i << " of " << values[i].sizes();
  }
}

TEST(OptimizerTest, SgdHasTheBitsOfSingleOperationsAtAnySize) {
  at::manual_seed(17);
  std::vector<at::Tensor> values;
  for (const auto size : {0, 1, 7, 10, 63, 64, 65, 1001, 65'537}) {
    values.push_back(at::randn({size}));
    values.push_back(at::randn({size}, at::kDouble));
  }
  for (const auto& spec : kKindsOfSgd) expect_same_steps(spec, values, [](int, std::size_t) { return true; });
}

TEST(OptimizerTest, SgdTakesUpParametersWhenTheirFirstGradientComes) {
  at::manual_seed(18);
  const std::vector<at::Tensor> values = {at::randn({70}), at::randn({70}), at::randn({70})};
  for (const auto& spec : kKindsOfSgd) {
    expect_same_steps(spec, values, [](int step, std::size_t parameter) {
      return parameter == 0 || (parameter == 1 ? step > 2 : step % 2 == 1);
    });
  }
}

TEST(OptimizerTest, SgdFollowsAParametersLayout) {
  at::manual_seed(19);
  const auto transposed = at::randn({17, 9}).t();
  for (const auto& spec : kKindsOfSgd) {
    expect_same_steps(spec, {transposed}, [](int, std::size_t) { return true; });
    auto parameter = transposed.clone().requires_grad_();
    auto oracle = parameter.detach().clone().requires_grad_();
    ASSERT_EQ(parameter.stride(0), 1);
    const auto row_major = at::randn({9, 17});
    parameter.mutable_grad() = row_major;
    oracle.mutable_grad() = row_major.clone();
    build_optimizer(spec, {parameter})->step();
    torch::optim::SGD({oracle}, options_of(spec)).step();
    EXPECT_TRUE(at::equal(parameter, oracle));
  }
}

TEST(OptimizerTest, AParameterWithGapsIsRefused) {
  try {
    build_optimizer({.lr = 0.1}, {at::zeros({4}), at::zeros({4, 4}).slice(1, 0, 2)});
    FAIL() << "a parameter with gaps was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("parameter 2 of 2"));
  }
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
