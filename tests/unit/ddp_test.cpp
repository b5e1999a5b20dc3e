// What ends in .grad: bit for bit PyTorch's values (ddp_golden.h), over real processes and gloo.
#include "dtorch/ddp.h"

#include <gtest/gtest.h>

#include "core/parallel/reducer.h"
#include "tests/unit/ddp_golden.h"
#include "tests/unit/ddp_models.h"
#include "tests/unit/rank_process.h"

namespace dtorch {
namespace {

using testing::Bag;
using testing::Perceptron;
using testing::run_ranks;

/** Several buckets even for the small models here. */
DdpOptions small_buckets() {
  DdpOptions options;
  options.bucket_cap = options.first_bucket_cap = 20;
  return options;
}

void expect_values(const std::map<std::string, at::Tensor>& tensors, const std::string& scenario, int rank) {
  const auto& golden = golden::kDdp.at(scenario).at(static_cast<std::size_t>(rank));
  EXPECT_EQ(tensors.size(), golden.size());
  for (const auto& [name, values] : golden)
    EXPECT_TRUE(testing::same_bits(tensors.at(name), values))
        << scenario << " " << name << " rank " << rank << "\n"
        << tensors.at(name);
}

template <class M>
void expect_gradients(const DDP<M>& model, const std::string& scenario, int rank) {
  expect_values(testing::gradients(*model.module()), scenario, rank);
}

TEST(DdpTest, AveragesGradientsOverUnevenBuckets) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP model(Bag(), group, small_buckets());
    model(group->rank(), 0).backward();
    expect_gradients(model, "average", group->rank());
    model(group->rank(), 1).backward();  // without zero_grad: adds to the average
    expect_gradients(model, "accumulate", group->rank());
  });
}

TEST(DdpTest, AccumulatesLocallyUnderNoSyncAndAveragesTheSum) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP model(Bag(), group, small_buckets());
    const int rank = group->rank();
    {
      const auto local = model.no_sync();
      model(rank, 0).backward();
      model(rank, 1).backward();
      EXPECT_TRUE(at::equal(model->tensors[0].grad(),
                            testing::coefficients(rank, 0, 0, 5) + testing::coefficients(rank, 1, 0, 5)));
    }
    model(rank, 2).backward();
    expect_gradients(model, "no_sync", rank);
    model->zero_grad(/*set_to_none=*/false);
    {
      const auto local = model.no_sync();
      model(rank, 1).backward();
    }
    model(rank, 0).backward();
    expect_gradients(model, "no_sync_zeroed", rank);
  });
}

TEST(DdpTest, GradientsStayRightHoweverTheyAreZeroed) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP model(Bag(), group, small_buckets());
    torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.0));
    for (const bool to_none : {true, false, false, true, false}) {
      optimizer.zero_grad(to_none);
      model(group->rank(), 0).backward();
      expect_gradients(model, "average", group->rank());
    }
    model->tensors[1].mutable_grad() = torch::zeros({3});  // a gradient of the user's own
    model->tensors[2].mutable_grad().reset();
    model->tensors[0].grad().zero_();
    model->tensors[3].grad().zero_();
    model(group->rank(), 0).backward();
    expect_gradients(model, "average", group->rank());
  });
}

TEST(DdpTest, UnusedParametersFollowPyTorch) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    auto options = small_buckets();
    options.find_unused_parameters = true;
    DDP model(Bag(), group, options);
    const int rank = group->rank();
    model(rank, 0, rank == 0 ? "abc" : "ab").backward();
    expect_gradients(model, "unused_0", rank);
    model(rank, 1, "abcd").backward();
    expect_gradients(model, "unused_1", rank);
    model(rank, 2, rank == 0 ? "ab" : "abc").backward();  // d keeps what the previous pass left
    expect_gradients(model, "unused_2", rank);
    model.zero_grad();
    {
      const auto local = model.no_sync();
      model(rank, 0, rank == 1 ? "abcd" : "ac").backward();
    }
    model(rank, 1, "ab").backward();
    expect_gradients(model, "unused_no_sync", rank);
  });
}

TEST(DdpTest, AStaticGraphLearnsUnusedParametersInItsFirstPass) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    auto options = small_buckets();
    options.static_graph = true;
    DDP model(Bag(), group, options);
    const int rank = group->rank();
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      model(rank, step, rank == 0 ? "abc" : "ab").backward();
      expect_gradients(model, "static_" + std::to_string(step), rank);
    }
  });
}

TEST(DdpTest, CompressingHooksRoundAsPyTorchs) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    for (const auto& [hook, name] : {std::pair(CommHook::fp16, "fp16"), std::pair(CommHook::bf16, "bf16")}) {
      auto options = small_buckets();
      options.comm_hook = hook;
      DDP model(Bag(), group, options);
      model(group->rank(), 0).backward();
      model(group->rank(), 1).backward();
      expect_gradients(model, name, group->rank());
    }
  });
}

TEST(DdpTest, BuffersComeFromRankZeroBeforeForward) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP model(torch::nn::BatchNorm1d(2), group);
    const int rank = group->rank();
    const auto x = [&](int step) {
      return torch::tensor({{1.F, 2.F}, {3.F, 8.F}, {5.F, 4.F}, {7.F, 2.F}}) * (rank + 1) + step;
    };
    for (int step = 0; step < 8; ++step) {
      if (step == 2) {
        const auto local = model.no_sync();
        model(x(step)).sum().backward();
      } else if (step == 5) {
        const torch::NoGradGuard no_grad;
        model->eval();
        model(x(step));
        model->train();
      } else {
        model(x(step)).sum().backward();
      }
      expect_values({{"mean", model->running_mean}, {"var", model->running_var}},
                    "buffers_" + std::to_string(step), rank);
    }
    EXPECT_EQ(model->num_batches_tracked.item<std::int64_t>(), 7);
  });
}

TEST(DdpTest, JoinLetsRanksRunOutOfData) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    for (const bool initial : {true, false}) {
      auto options = small_buckets();
      options.uneven_inputs = true;
      options.divide_by_initial_world_size = initial;
      DDP model(Bag(), group, options);
      torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.125));
      for (int step = 0; step < (group->rank() == 0 ? 3 : 1); ++step) {
        optimizer.zero_grad();
        model(group->rank(), step).backward();
        optimizer.step();
      }
      model.join();
      std::map<std::string, at::Tensor> weights;
      for (const auto& item : model->named_parameters()) weights[item.key()] = item.value();
      expect_values(weights, initial ? "join_initial" : "join_active", group->rank());
      optimizer.zero_grad();
      model(group->rank(), 0).backward();  // and on with the next epoch, together
      if (initial) expect_gradients(model, "average", group->rank());
    }
  });
}

// As PyTorch's Join: whoever is the longest at work has the model that all end with.
TEST(DdpTest, JoinDoesNotCareWhichRankIsTheLongest) {
  for (const int longest : {0, 1, 2}) {
    run_ranks(3, [&](const ProcessGroupPtr& group) {
      auto options = small_buckets();
      options.uneven_inputs = true;
      DDP model(torch::nn::BatchNorm1d(2), group, options);
      torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.125));
      for (int step = 0; step < (group->rank() == longest ? 3 : 1); ++step) {
        optimizer.zero_grad();
        model(torch::arange(4.F).reshape({2, 2}) * (group->rank() + step + 1)).square().sum().backward();
        optimizer.step();
      }
      model.join();
      EXPECT_EQ(model->num_batches_tracked.item<std::int64_t>(), 3);
      for (auto tensor : {model->weight.detach(), model->running_mean}) {
        auto first = tensor.clone();
        group->broadcast(first, 0)->wait(Deadline::after(std::chrono::seconds(20)));
        EXPECT_TRUE(torch::equal(tensor, first)) << tensor << first;
      }
    });
  }
}

/** What two ranks must get, computed by one: both batches' gradients, halved and added. */
TEST(DdpTest, TrainsAPerceptronToTheBitsOfASerialRun) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    torch::manual_seed(1 + group->rank());  // rank 1 starts elsewhere and must get rank 0's weights
    Perceptron replica(20, 30, 5);
    DdpOptions options;
    options.first_bucket_cap = 100;
    options.bucket_cap = 1000;
    DDP model(replica, group, options);
    torch::manual_seed(1);
    Perceptron serial(20, 30, 5);
    torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::SGD serial_optimizer(serial->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const auto loss = [](const at::Tensor& output, const at::Tensor& target) {
      return torch::cross_entropy_loss(output, target);
    };
    for (int step = 0; step < 10; ++step) {
      const auto inputs = torch::randn({2, 8, 20});
      const auto targets = torch::randint(5, {2, 8});
      optimizer.zero_grad();
      loss(model(inputs[group->rank()]), targets[group->rank()]).backward();
      optimizer.step();

      std::vector<at::Tensor> sum;
      for (int rank = 0; rank < 2; ++rank) {
        serial_optimizer.zero_grad();
        loss(serial(inputs[rank]), targets[rank]).backward();
        for (std::size_t i = 0; i < serial->parameters().size(); ++i) {
          const auto half = serial->parameters()[i].grad() / 2;
          if (rank == 0)
            sum.push_back(half);
          else
            sum[i] += half;
        }
      }
      for (std::size_t i = 0; i < sum.size(); ++i) serial->parameters()[i].mutable_grad() = sum[i];
      serial_optimizer.step();
      for (std::size_t i = 0; i < sum.size(); ++i)
        ASSERT_TRUE(at::equal(serial->parameters()[i], replica->parameters()[i]))
            << "step " << step << " parameter " << i;
    }
  });
}

TEST(DdpTest, ThreeRanksAverageTheSameEveryTime) {
  run_ranks(3, [](const ProcessGroupPtr& group) {
    DDP model(Bag(), group, small_buckets());
    at::Tensor first;
    for (int round = 0; round < 3; ++round) {
      model.zero_grad();
      model(group->rank(), 0).backward();
      const auto gradient = model->tensors[0].grad();
      EXPECT_TRUE(at::allclose(gradient, testing::coefficients(1, 0, 0, 5), 1e-6))
          << gradient;  // ranks weigh 1, 2, 3
      if (round == 0) first = gradient.clone();
      EXPECT_TRUE(at::equal(gradient, first));
    }
  });
}

TEST(DdpTest, OneRankKeepsItsOwnGradients) {
  run_ranks(1, [](const ProcessGroupPtr& group) {
    DDP model(Bag(), group, small_buckets());
    model(0, 0).backward();
    model(0, 1).backward();
    for (int i = 0; i < 4; ++i) {
      const auto& tensor = model->tensors[static_cast<std::size_t>(i)];
      EXPECT_TRUE(at::equal(tensor.grad(), testing::coefficients(0, 0, i, tensor.numel()) +
                                               testing::coefficients(0, 1, i, tensor.numel())));
    }
  });
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    shared = register_parameter("shared", torch::zeros({4}));
    register_parameter("again", shared);
    frozen = register_parameter("frozen", torch::ones({3}), /*requires_grad=*/false);
    layer = register_module("layer", torch::nn::Linear(torch::nn::LinearOptions(4, 1).bias(false)));
    register_module("layer_again", layer);
  }
  at::Tensor forward(int rank) {
    return (shared * testing::coefficients(rank, 0, 0, 4)).sum() +
           (shared * testing::coefficients(rank, 1, 0, 4)).sum() +
           layer(testing::coefficients(rank, 2, 0, 4)).sum() + frozen.sum();
  }
  at::Tensor shared, frozen;
  torch::nn::Linear layer{nullptr};
};
TORCH_MODULE(Tied);

TEST(DdpTest, SharedParametersCountOnceAndFrozenOnesStayOut) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    Tied tied;
    EXPECT_EQ(parameters_of(*tied).size(), 3U);
    DDP model(tied, group, small_buckets());
    model(group->rank()).backward();
    const auto mean = [](int step) {
      return (testing::coefficients(0, step, 0, 4) + testing::coefficients(1, step, 0, 4)) / 2;
    };
    EXPECT_TRUE(at::allclose(model->shared.grad(), mean(0) + mean(1), 1e-6));
    EXPECT_TRUE(at::equal(model->layer->weight.grad()[0], mean(2)));
    EXPECT_FALSE(model->frozen.grad().defined());
  });
}

struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    narrow = register_parameter("narrow", torch::zeros({5}, torch::kHalf));
    wide = register_parameter("wide", torch::zeros({3}, torch::kDouble));
    turned = register_parameter("turned", torch::zeros({4, 6}).t());
    brain = register_parameter("brain", torch::zeros({2}, torch::kBFloat16));
  }
  at::Tensor forward(float scale) {
    return (narrow * scale).sum().to(torch::kDouble) + (wide * scale).sum() +
           (turned * torch::arange(24, torch::kFloat32).view({6, 4}) * scale).sum().to(torch::kDouble) +
           (brain * scale).sum().to(torch::kDouble);
  }
  at::Tensor narrow, wide, turned, brain;
};
TORCH_MODULE(Mixed);

TEST(DdpTest, DtypesAndLayoutsKeepTheirOwnBuckets) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP model(Mixed(), group);
    for (int round = 0; round < 2; ++round) {
      model.zero_grad();
      model(group->rank() == 0 ? 1.0F : 2.0F).backward();
      EXPECT_TRUE(at::equal(model->narrow.grad(), torch::full({5}, 1.5, torch::kHalf)));
      EXPECT_TRUE(at::equal(model->wide.grad(), torch::full({3}, 1.5, torch::kDouble)));
      EXPECT_TRUE(at::equal(model->turned.grad(), torch::arange(24, torch::kFloat32).view({6, 4}) * 1.5));
      EXPECT_EQ(model->turned.grad().strides(), model->turned.strides());
      EXPECT_TRUE(at::equal(model->brain.grad(), torch::full({2}, 1.5, torch::kBFloat16)));
    }
  });
}

}  // namespace
}  // namespace dtorch
