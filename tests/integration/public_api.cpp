// A program such as users write, against the public headers only: every function of them once, between two ranks.
// Usage: public_api INIT_METHOD RANK. Exits with 0, or says in which line what was wrong.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "dtorch/data.h"
#include "dtorch/ddp.h"
#include "dtorch/distributed.h"

namespace {

void check(bool right, int line) {
  if (right) return;
  std::cerr << "public_api.cpp:" << line << ": not as expected" << std::endl;
  std::exit(1);
}
#define REQUIRE(...) check((__VA_ARGS__), __LINE__)

at::Tensor filled(double value, std::int64_t size = 4) { return at::full({size}, value); }
bool holds(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

template <typename Call>
bool refused(Call&& call) {
  try {
    call();
  } catch (const dtorch::Error&) {
    return true;
  }
  return false;
}

void reductions(int rank) {
  auto tensor = filled(rank + 1);
  dtorch::all_reduce(tensor);
  REQUIRE(holds(tensor, 3));
  const auto work = dtorch::all_reduce(tensor, dtorch::ReduceOp::max, nullptr, /*async_op=*/true);
  work->wait();
  REQUIRE(holds(tensor, 3));
  std::vector<at::Tensor> several{filled(rank), filled(2 * rank, 7)};
  dtorch::all_reduce_coalesced(several);
  REQUIRE(holds(several[0], 1) && holds(several[1], 2));
  tensor = filled(rank + 1);
  dtorch::reduce(tensor, 1);
  REQUIRE(rank == 0 || holds(tensor, 3));
  auto part = filled(0);
  dtorch::reduce_scatter(part, {filled(rank), filled(10 + rank)});
  REQUIRE(holds(part, rank == 0 ? 1 : 21));
  dtorch::reduce_scatter_tensor(part, at::cat({filled(rank), filled(10 + rank)}));
  REQUIRE(holds(part, rank == 0 ? 1 : 21));
}

void movements(int rank) {
  auto tensor = filled(rank);
  dtorch::broadcast(tensor, 1);
  REQUIRE(holds(tensor, 1));
  std::vector<at::Tensor> list{filled(9), filled(9)};
  dtorch::all_gather(list, filled(rank));
  REQUIRE(holds(list[0], 0) && holds(list[1], 1));
  auto whole = filled(9, 8);
  dtorch::all_gather_into_tensor(whole, filled(rank));
  REQUIRE(holds(whole.slice(0, 0, 4), 0) && holds(whole.slice(0, 4), 1));
  std::vector<at::Tensor> gathered;
  if (rank == 1) gathered = {filled(9), filled(9)};
  dtorch::gather(filled(rank), gathered, 1);
  REQUIRE(rank == 0 || (holds(gathered[0], 0) && holds(gathered[1], 1)));
  std::vector<at::Tensor> scattered;
  if (rank == 0) scattered = {filled(5), filled(6)};
  dtorch::scatter(tensor, scattered, 0);
  REQUIRE(holds(tensor, 5 + rank));
  dtorch::all_to_all(list, {filled(10 * rank), filled(10 * rank + 1)});
  REQUIRE(holds(list[0], rank) && holds(list[1], 10 + rank));
  auto received = filled(9, 2 * (rank + 1));
  dtorch::all_to_all_single(received, filled(rank, 3), {rank + 1, rank + 1}, {1, 2});
  REQUIRE(holds(received.slice(0, 0, rank + 1), 0) && holds(received.slice(0, rank + 1), 1));
  if (rank == 0) {
    dtorch::send(filled(7), 1, nullptr, 3);
    dtorch::irecv(tensor, 1)->wait();
    REQUIRE(holds(tensor, 8));
  } else {
    dtorch::recv(tensor, 0, nullptr, 3);
    REQUIRE(holds(tensor, 7));
    dtorch::isend(filled(8), 0)->wait();
  }
}

void groups(int rank) {
  const auto alone = dtorch::new_group({1}, std::chrono::seconds(20));
  REQUIRE((alone != nullptr) == (rank == 1));
  if (alone) {
    auto tensor = filled(2);
    dtorch::all_reduce(tensor, dtorch::ReduceOp::sum, alone);
    REQUIRE(holds(tensor, 2) && dtorch::get_rank(alone) == 0 && dtorch::get_world_size(alone) == 1);
    dtorch::destroy_process_group(alone);
    REQUIRE(dtorch::is_initialized() &&
            refused([&] { dtorch::all_reduce(tensor, dtorch::ReduceOp::sum, alone); }));
  }
  dtorch::barrier();
  dtorch::monitored_barrier(nullptr, std::chrono::seconds(20));
}

/** Eight images of one pixel: item i is i everywhere. */
class Counting : public dtorch::ImageDataset {
 public:
  std::int64_t size() const override { return labels_.size(0); }
  const at::Tensor& images() const override { return images_; }
  const at::Tensor& labels() const override { return labels_; }

 private:
  at::Tensor labels_ = at::arange(8, at::kLong);
  at::Tensor images_ = labels_.to(at::kByte).view({8, 1, 1});
};

void data(int rank) {
  const auto dataset = std::make_shared<Counting>();
  auto sampler = dtorch::distributed_sampler(dataset->size(), {.shuffle = false});
  dtorch::DataLoader loader(dataset, {.batch_size = 3});
  REQUIRE(sampler.size() == 4 && loader.batches(sampler.size()) == 2);
  sampler.set_epoch(1);
  loader.start(sampler.indices());
  std::vector<at::Tensor> targets;
  while (const auto batch = loader.next()) {
    REQUIRE(at::equal(batch->inputs.flatten(), batch->targets.to(at::kFloat).div(255)));
    targets.push_back(batch->targets);
  }
  REQUIRE(at::equal(at::cat(targets), at::arange(rank, 8, 2, at::kLong)));
}

void training_over_the_default_group(int rank) {
  dtorch::DDP model(torch::nn::Linear(3, 1));
  model(at::full({2, 3}, rank + 1.0)).sum().backward();
  REQUIRE(holds(model->weight.grad(), 3) && holds(model->bias.grad(), 2));
}

void training(int rank) {
  dtorch::DdpOptions options;
  options.uneven_inputs = true;
  dtorch::DDP model(torch::nn::Linear(3, 1), dtorch::default_group(), options);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.125));
  for (int step = 0; step < 2 + rank; ++step) {  // rank 1 has more data
    model.zero_grad();
    if (step == 0) {
      const auto local = model.no_sync();
      model(at::full({2, 3}, rank + 1.0)).sum().backward();
      REQUIRE(holds(model->bias.grad(), 2) && holds(model->weight.grad(), 2.0 * (rank + 1)));
    }
    model(at::full({2, 3}, rank + 1.0)).sum().backward();
    optimizer.step();
  }
  model.join();
  auto highest = model.module()->weight.detach().clone();
  auto lowest = highest.clone();
  dtorch::all_reduce(highest, dtorch::ReduceOp::max);
  dtorch::all_reduce(lowest, dtorch::ReduceOp::min);
  REQUIRE(at::equal(highest, lowest));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const int rank = std::atoi(argv[2]);
  REQUIRE(!dtorch::is_initialized() && refused([] { dtorch::default_group(); }));
  for (int round = 0; round < 2; ++round) {
    const std::string init = std::string(argv[1]) + std::to_string(round);
    if (round == 0) {
      dtorch::init_process_group("gloo", init, rank, 2, std::chrono::seconds(40));
    } else {
      dtorch::init_process_group({.backend = "gloo",
                                  .init_method = init,
                                  .rank = rank,
                                  .world_size = 2,
                                  .timeout = std::chrono::seconds(40)});
    }
    REQUIRE(dtorch::is_initialized() && dtorch::get_rank() == rank && dtorch::get_world_size() == 2);
    REQUIRE(dtorch::get_backend() == "gloo");
    REQUIRE(refused([&] { dtorch::init_process_group({.backend = "gloo", .init_method = init}); }));
    reductions(rank);
    movements(rank);
    groups(rank);
    data(rank);
    training_over_the_default_group(rank);
    training(rank);
    dtorch::barrier();
    const auto held = dtorch::default_group();
    dtorch::destroy_process_group();
    REQUIRE(!dtorch::is_initialized() && refused([&] { dtorch::barrier(held); }));
  }
  std::cout << "done" << std::endl;
  return 0;
}
