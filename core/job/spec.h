// The resolved job spec: what a job is, after extends, interpolation, overrides and defaults. Filled only by
// load_job.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtorch {

struct ModelSpec {
  std::string type = "mlp";
  std::vector<std::int64_t> layers{784, 512, 10};  ///< widths, input first
  std::string activation = "relu";                 ///< none | relu, between the linear layers
  bool operator==(const ModelSpec&) const = default;
};

struct DatasetSpec {
  std::string type;  ///< mnist | fashion_mnist | idx
  std::string root;  ///< folder with the files; empty: data/<type>
  bool download = false;
  std::string fallback;  ///< another type, used (and announced) when this one cannot be had; may be empty
  std::vector<std::string> mirrors;  ///< base URLs tried in order; empty: the built-in public ones
  // idx only: the four files, absolute or relative to root
  std::string train_images, train_labels, test_images, test_labels;
  bool operator==(const DatasetSpec&) const = default;
};

struct LoaderSpec {
  std::int64_t batch_size = 64;  ///< per rank
  int workers = 1;
  bool operator==(const LoaderSpec&) const = default;
};

struct SamplerSpec {
  bool shuffle = true;
  bool drop_last = false;
  bool operator==(const SamplerSpec&) const = default;
};

struct LossSpec {
  std::string type = "cross_entropy";
  bool operator==(const LossSpec&) const = default;
};

struct OptimizerSpec {
  std::string type = "sgd";
  double lr = 0.01;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool operator==(const OptimizerSpec&) const = default;
};

struct DdpSpec {
  std::int64_t bucket_cap = 25 << 20;  ///< bytes
  bool find_unused_parameters = false;
  bool static_graph = false;
  std::string comm_hook = "none";  ///< none | fp16 | bf16
  bool shard_optimizer = false;
  bool operator==(const DdpSpec&) const = default;
};

struct EvalSpec {
  std::int64_t batch_size = 1000;  ///< per rank
  int every = 1;                   ///< epochs; 0: only at the end
  bool operator==(const EvalSpec&) const = default;
};

struct TimeoutSpec {
  std::chrono::milliseconds rendezvous{300'000};
  std::chrono::milliseconds init{300'000};
  std::chrono::milliseconds collective{1'800'000};  ///< PyTorch's default on CPU backends
  std::chrono::milliseconds shutdown{5'000};        ///< from the stop request until ranks are killed
  bool operator==(const TimeoutSpec&) const = default;
};

struct MetricsSpec {
  std::chrono::milliseconds interval{1'000};  ///< of the plain progress lines
  bool operator==(const MetricsSpec&) const = default;
};

/** Where ranks run. Empty hosts: world_size ranks split evenly over `--nnodes` nodes (default one). */
struct NodesSpec {
  struct Host {
    std::string name;
    int slots = 1;
    bool operator==(const Host&) const = default;
  };
  std::vector<Host> hosts;
  std::string interface;    ///< network interface for backends, empty: the one that routes to the master
  bool bind_cores = false;  ///< pin each local rank to its share of the cores
  int threads = 0;          ///< compute threads a rank (OMP_NUM_THREADS); 0: cores / local ranks, at least 1
  bool operator==(const NodesSpec&) const = default;
};

struct JobSpec {
  int version = 1;
  std::string name = "job";
  std::string backend = "auto";
  std::string init_method = "tcp://127.0.0.1:0";
  int world_size = 1;
  std::int64_t seed = 0;
  std::string device = "auto";
  ModelSpec model;
  DatasetSpec dataset;
  LoaderSpec loader;
  SamplerSpec sampler;
  LossSpec loss;
  OptimizerSpec optimizer;
  int epochs = 1;
  DdpSpec ddp;
  EvalSpec eval;
  TimeoutSpec timeouts;
  MetricsSpec metrics;
  NodesSpec nodes;
  bool operator==(const JobSpec&) const = default;
};

}  // namespace dtorch
