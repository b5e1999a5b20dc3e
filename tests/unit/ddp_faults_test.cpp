// What DistributedDataParallel says when ranks differ, gradients are missing or a peer is gone; unusual
// passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtorch/ddp.h"
#include "tests/unit/ddp_models.h"
#include "tests/unit/rank_process.h"

namespace dtorch {
namespace {

using ::testing::AllOf;
using testing::Bag;
using ::testing::HasSubstr;
using testing::Perceptron;
using testing::run_ranks;

DdpOptions small_buckets() {
  DdpOptions options;
  options.bucket_cap = options.first_bucket_cap = 20;
  return options;
}

/** The dtorch::Error that the call throws. */
template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing thrown";
  return {ErrorKind::training, ""};
}

template <class Call>
void expect_error(Call&& call, ErrorKind kind, const ::testing::Matcher<const std::string&>& message) {
  const auto error = error_of(std::forward<Call>(call));
  EXPECT_EQ(to_string(error.kind()), to_string(kind)) << error.what();
  EXPECT_THAT(std::string(error.what()), message);
  EXPECT_FALSE(kind == ErrorKind::usage && error.help().empty());
}

at::Tensor average(int step, int parameter, std::int64_t size) {
  return testing::coefficients(0, step, parameter, size) / 2 +
         testing::coefficients(1, step, parameter, size) / 2;
}

TEST(DdpFaultsTest, ModelsThatDifferAreNamedOnEveryRank) {
  run_ranks(3, [](const ProcessGroupPtr& group) {
    expect_error([&] { DDP(Perceptron(4, 3, group->rank() == 2 ? 5 : 2), group); }, ErrorKind::disagree,
                 AllOf(HasSubstr("rank 0 has parameter fc2.weight: float32 [2, 3]"),
                       HasSubstr("rank 2 has parameter fc2.weight: float32 [5, 3]")));
    Perceptron frozen(4, 3, 2);
    if (group->rank() == 1) frozen->fc1->bias.set_requires_grad(false);
    expect_error([&] { DDP(frozen, group); }, ErrorKind::disagree,
                 AllOf(HasSubstr("rank 0 has parameter fc1.bias: float32 [3],"),
                       HasSubstr("fc1.bias: float32 [3], frozen")));
    DdpOptions options;
    options.bucket_cap = 1000 + group->rank();
    expect_error([&] { DDP(Perceptron(4, 3, 2), group, options); }, ErrorKind::disagree,
                 AllOf(HasSubstr("bucket_cap 1000"), HasSubstr("bucket_cap 1001")));
    Perceptron extra(4, 3, 2);
    if (group->rank() == 1) extra->register_buffer("seen", torch::zeros({1}, torch::kLong));
    expect_error([&] { DDP(extra, group); }, ErrorKind::disagree,
                 AllOf(HasSubstr("rank 0 has nothing more"), HasSubstr("buffer seen: int64 [1]")));
    DDP agreed(Perceptron(4, 3, 2), group);  // the group is still good
    agreed(torch::ones({1, 4})).sum().backward();
  });
}

TEST(DdpFaultsTest, RefusesWhatCannotBeTrained) {
  run_ranks(1, [](const ProcessGroupPtr& group) {
    Perceptron frozen(4, 3, 2);
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    expect_error([&] { DDP(frozen, group); }, ErrorKind::usage, HasSubstr("nothing to train"));
    DdpOptions options;
    options.bucket_cap = 0;
    expect_error([&] { DDP(Bag(), group, options); }, ErrorKind::usage, HasSubstr("bucket of 0 bytes"));
    DDP model(Bag(), group);
    expect_error([&] { model.join(); }, ErrorKind::usage, HasSubstr("join()"));
  });
}

TEST(DdpFaultsTest, ParametersWithoutGradientAreNamedAtTheEndOfBackward) {
  for (const int world : {1, 2}) {
    run_ranks(world, [](const ProcessGroupPtr& group) {
      DDP model(Bag(), group, small_buckets());
      auto loss = model(group->rank(), 0, "ac");
      expect_error([&] { loss.backward(); }, ErrorKind::usage,
                   HasSubstr("Parameters that received no gradient: b, d"));
      expect_error([&] { model(group->rank(), 1); }, ErrorKind::usage, HasSubstr("no gradient: b, d"));
    });
  }
}

TEST(DdpFaultsTest, AChangedStaticGraphIsRefused) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    auto options = small_buckets();
    options.static_graph = true;
    DDP less(Bag(), group, options);
    less(group->rank(), 0).backward();
    expect_error([&] { less(group->rank(), 0, "abc").backward(); }, ErrorKind::usage,
                 HasSubstr("no gradient: d"));
    DDP more(Bag(), group, options);
    more(group->rank(), 0, "abc").backward();
    expect_error([&] { more(group->rank(), 0, "abcd").backward(); }, ErrorKind::usage,
                 HasSubstr("parameter d"));
  });
}

TEST(DdpFaultsTest, OutputsThatWereNotShownAreRefused) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    auto options = small_buckets();
    options.find_unused_parameters = true;
    Bag bag;
    DistributedDataParallel ddp(bag.ptr(), group, options);
    ddp.prepare_forward();
    const auto shown = bag(group->rank(), 0, "abc");
    const auto hidden = bag(group->rank(), 0, "d");
    ddp.prepare_backward({shown});
    const auto error = error_of([&] { (shown + hidden).backward(); });
    EXPECT_THAT(error.what(), HasSubstr("parameter d received a gradient when none was expected"));
    EXPECT_THAT(error.help(), HasSubstr("prepare_backward"));
  });
}

TEST(DdpFaultsTest, SparseAndHigherOrderGradientsAreRefused) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP sparse(torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true)), group);
    expect_error([&] { sparse(torch::arange(4)).sum().backward(); }, ErrorKind::usage,
                 AllOf(HasSubstr("weight"), HasSubstr("sparse")));
    DDP twice(Bag(), group);
    auto loss = twice(group->rank(), 0).pow(2);
    expect_error([&] { loss.backward({}, /*keep_graph=*/true, /*create_graph=*/true); }, ErrorKind::usage,
                 HasSubstr("create_graph"));
  });
}

struct Failing : torch::autograd::Function<Failing> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    throw std::out_of_range("the user's own");
  }
};

TEST(DdpFaultsTest, AnInterruptedBackwardIsNotTakenForAWholeOne) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP model(Bag(), group, small_buckets());
    auto partly = Failing::apply(model(group->rank(), 0, "a"));
    partly = partly + model(group->rank(), 0, "bcd");  // made last, so its gradients come first
    EXPECT_THROW(partly.backward(), std::out_of_range);
    expect_error([&] { model(group->rank(), 1); }, ErrorKind::usage, HasSubstr("no gradient: a"));
  });
}

TEST(DdpFaultsTest, ALostPeerLeavesBackwardAsAnError) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP model(Bag(), group, small_buckets());
    const auto loss = model(group->rank(), 0);
    if (group->rank() == 1) std::_Exit(0);
    expect_error([&] { loss.backward(); }, ErrorKind::lost, HasSubstr("all_reduce"));
    EXPECT_EQ(error_of([&] { model(group->rank(), 1); }).kind(), ErrorKind::lost);
  });
}

TEST(DdpFaultsTest, AStalledPeerEndsInATimeout) {
  testing::RankOptions options;
  options.group.timeout = std::chrono::milliseconds(1500);
  run_ranks(
      2,
      [](const ProcessGroupPtr& group) {
        DDP model(Bag(), group, small_buckets());
        const auto loss = model(group->rank(), 0);
        if (group->rank() == 1) {
          std::this_thread::sleep_for(std::chrono::seconds(4));
          std::_Exit(0);
        }
        expect_error([&] { loss.backward(); }, ErrorKind::timeout, HasSubstr("all_reduce"));
      },
      options);
}

TEST(DdpPassesTest, RanksMayMakeGradientsInAnyOrder) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP model(Bag(), group, small_buckets());
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      model(group->rank(), step, group->rank() == 0 ? "abcd" : "dbca").backward();
      for (int i = 0; i < 4; ++i) {
        const auto& tensor = model->tensors[static_cast<std::size_t>(i)];
        EXPECT_TRUE(at::equal(tensor.grad(), average(step, i, tensor.numel()))) << step << " " << i;
      }
    }
  });
}

TEST(DdpPassesTest, SeveralForwardOrBackwardPassesAverageToo) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    DDP model(Bag(), group, small_buckets());
    const auto first = model(group->rank(), 0);
    const auto second = model(group->rank(), 1);
    (first + second).backward({}, /*keep_graph=*/true);
    const auto expected = average(0, 0, 5) + average(1, 0, 5);
    EXPECT_TRUE(at::allclose(model->tensors[0].grad(), expected, 1e-6));
    first.backward();
    second.backward();
    EXPECT_TRUE(at::allclose(model->tensors[0].grad(), expected * 2, 1e-6));
  });
}

/** As activation checkpointing: the backward pass runs forward and backward of its part again. */
struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor* weight) {
    context->saved_data["weight"] = *weight;
    return (weight->detach() * input.detach()).sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode with_grad(true);
    const auto weight = context->saved_data["weight"].toTensor();
    (weight * torch::arange(weight.numel(), torch::kFloat32)).sum().backward(gradients[0].detach());
    return {gradients[0] * weight.detach(), at::Tensor()};
  }
};

struct NestedImpl : torch::nn::Module {
  NestedImpl() {
    outer = register_parameter("outer", torch::ones({3}));
    inner = register_parameter("inner", torch::ones({3}));
  }
  at::Tensor forward(float scale, int parts) {
    auto loss = (outer * scale).sum();
    for (int part = 0; part < parts; ++part)
      loss = loss + scale * Recompute::apply(outer * torch::arange(3, torch::kFloat32), &inner);
    return loss;
  }
  at::Tensor outer, inner;
};
TORCH_MODULE(Nested);

TEST(DdpPassesTest, BackwardWithinBackward) {
  run_ranks(2, [](const ProcessGroupPtr& group) {
    const float scale = group->rank() == 0 ? 1 : 3;
    for (const bool is_static : {false, true}) {
      auto options = small_buckets();
      options.static_graph = is_static;
      const int parts = is_static ? 2 : 1;
      DDP model(Nested(), group, options);
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        model(scale, parts).backward();
        const auto steps = torch::arange(3, torch::kFloat32);
        EXPECT_TRUE(at::equal(model->inner.grad(), 2 * parts * steps)) << model->inner.grad();
        EXPECT_TRUE(at::equal(model->outer.grad(), 2 * parts * steps + 2)) << model->outer.grad();
      }
    }
    DDP refused(Nested(), group, small_buckets());
    expect_error([&] { refused(scale, 2).backward(); }, ErrorKind::usage,
                 HasSubstr("parameter inner received a gradient"));
  });
}

}  // namespace
}  // namespace dtorch
