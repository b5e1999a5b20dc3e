#include "core/job/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/job/fields.h"

namespace dtorch {
namespace job {
namespace {

using enum KeyType;

template <auto Member>
Target top(JobSpec& spec) {
  return &(spec.*Member);
}
template <auto Section, auto Member>
Target in(JobSpec& spec) {
  return &(spec.*Section.*Member);
}
Target none(JobSpec& /*spec*/) { return std::monostate{}; }

constexpr std::string_view kWait = ">= 10ms, <= 720h";

// What a value must satisfy stands here once: the validator reads `range` and `later` as they are.
constexpr std::array kFields{
    Field{{"version", integer, "", "1", "Version of this format."}, top<&JobSpec::version>},
    Field{{"name", text, "job", "1 to 128 characters, no '/'", "Name of the job, for people."},
          top<&JobSpec::name>},
    Field{{"backend", choice, "auto", "auto | gloo | tcp | shm",
           "What moves data between ranks; auto: shm on one host, tcp between hosts.", "nccl | mpi"},
          top<&JobSpec::backend>},
    Field{{"init_method", text, "tcp://127.0.0.1:0",
           "tcp://HOST:PORT, file:///FILE, shared_filesystem:///FOLDER, env://",
           "How ranks find each other. Port 0: any free one (one machine only)."},
          top<&JobSpec::init_method>},
    Field{{"world_size", integer, "1", ">= 1, <= 65536", "Ranks in the job, on all machines together."},
          top<&JobSpec::world_size>},
    Field{{"seed", integer, "0", ">= 0",
           "Seed of weights and of the order of the data, the same on every rank."},
          top<&JobSpec::seed>},
    Field{{"device", choice, "auto", "auto | cpu", "Where tensors live.", "cuda"}, top<&JobSpec::device>},

    Field{{"model", section, "", "", "The network."}, none},
    Field{
        {"model.type", choice, "", "mlp", "Kind of network; `model: mlp` is short for `model: {type: mlp}`.",
         "sequential | lenet | cnn | resnet18 | resnet50 | transformer"},
        in<&JobSpec::model, &ModelSpec::type>},
    Field{{"model.layers", list_of_integers, "[784, 512, 10]", ">= 1, <= 16777216",
           "Widths of the perceptron, input first, output last."},
          in<&JobSpec::model, &ModelSpec::layers>},
    Field{{"model.activation", choice, "relu", "none | relu", "Between the linear layers.",
           "tanh | sigmoid | gelu | silu | leaky_relu"},
          in<&JobSpec::model, &ModelSpec::activation>},

    Field{{"dataset", section, "", "", "What is learnt and tested."}, none},
    Field{{"dataset.type", choice, "", "mnist | fashion_mnist | idx",
           "Kind of dataset; `dataset: mnist` is short for `dataset: {type: mnist}`.",
           "cifar10 | cifar100 | csv | synthetic | images"},
          in<&JobSpec::dataset, &DatasetSpec::type>},
    Field{{"dataset.root", text, "''", "a folder", "Folder of the files; empty: data/TYPE."},
          in<&JobSpec::dataset, &DatasetSpec::root>},
    Field{{"dataset.download", boolean, "false", "",
           "Fetch missing files from public mirrors (mnist, fashion_mnist)."},
          in<&JobSpec::dataset, &DatasetSpec::download>},
    Field{{"dataset.fallback", choice, "''", "mnist | fashion_mnist",
           "Used, and announced, when this dataset cannot be had."},
          in<&JobSpec::dataset, &DatasetSpec::fallback>},
    Field{{"dataset.mirrors", list_of_text, "[]", "http:// or https:// addresses",
           "Where to download from, tried in order; empty: the built-in ones."},
          in<&JobSpec::dataset, &DatasetSpec::mirrors>},
    Field{{"dataset.train_images", text, "''", "a file",
           "idx only: training images, IDX format, .gz or not, relative to root."},
          in<&JobSpec::dataset, &DatasetSpec::train_images>},
    Field{{"dataset.train_labels", text, "''", "a file", "idx only: training labels."},
          in<&JobSpec::dataset, &DatasetSpec::train_labels>},
    Field{{"dataset.test_images", text, "''", "a file", "idx only: test images."},
          in<&JobSpec::dataset, &DatasetSpec::test_images>},
    Field{{"dataset.test_labels", text, "''", "a file", "idx only: test labels."},
          in<&JobSpec::dataset, &DatasetSpec::test_labels>},

    Field{{"loader", section, "", "", "How batches are made."}, none},
    Field{{"loader.batch_size", integer, "64", ">= 1, <= 16777216", "Samples in a batch, per rank."},
          in<&JobSpec::loader, &LoaderSpec::batch_size>},
    Field{{"loader.workers", integer, "1", ">= 0, <= 64",
           "Threads a rank that prepare batches ahead; the order of data does not depend on it."},
          in<&JobSpec::loader, &LoaderSpec::workers>},

    Field{{"sampler", section, "", "", "Which samples a rank sees (torch's DistributedSampler)."}, none},
    Field{{"sampler.shuffle", boolean, "true", "", "Another order each epoch, from seed and epoch."},
          in<&JobSpec::sampler, &SamplerSpec::shuffle>},
    Field{{"sampler.drop_last", boolean, "false", "",
           "Drop samples that do not divide evenly, instead of repeating some."},
          in<&JobSpec::sampler, &SamplerSpec::drop_last>},

    Field{{"loss", section, "", "", "What is minimised."}, none},
    Field{{"loss.type", choice, "cross_entropy", "cross_entropy",
           "Kind of loss; `loss: cross_entropy` is short.", "mse | nll | bce | l1 | huber"},
          in<&JobSpec::loss, &LossSpec::type>},

    Field{{"optimizer", section, "", "", "How weights follow gradients."}, none},
    Field{{"optimizer.type", choice, "sgd", "sgd", "Kind of optimizer; `optimizer: sgd` is short.",
           "adam | adamw | rmsprop | adagrad | lbfgs"},
          in<&JobSpec::optimizer, &OptimizerSpec::type>},
    Field{{"optimizer.lr", number, "0.01", "> 0, <= 1e6", "Learning rate."},
          in<&JobSpec::optimizer, &OptimizerSpec::lr>},
    Field{{"optimizer.momentum", number, "0", ">= 0, <= 1", "Momentum."},
          in<&JobSpec::optimizer, &OptimizerSpec::momentum>},
    Field{{"optimizer.dampening", number, "0", ">= 0, <= 1", "Dampening of the momentum."},
          in<&JobSpec::optimizer, &OptimizerSpec::dampening>},
    Field{{"optimizer.weight_decay", number, "0", ">= 0, <= 1e6", "Weight decay (L2)."},
          in<&JobSpec::optimizer, &OptimizerSpec::weight_decay>},
    Field{{"optimizer.nesterov", boolean, "false", "",
           "Nesterov momentum; needs momentum > 0 and dampening 0."},
          in<&JobSpec::optimizer, &OptimizerSpec::nesterov>},

    Field{{"epochs", integer, "1", ">= 1, <= 1000000", "Passes over the training data."},
          top<&JobSpec::epochs>},

    Field{{"ddp", section, "", "", "How gradients are averaged (torch's DistributedDataParallel)."}, none},
    Field{{"ddp.bucket_cap", size, "25MiB", ">= 1KiB, <= 64GiB",
           "Gradients are averaged in buckets of about this size."},
          in<&JobSpec::ddp, &DdpSpec::bucket_cap>},
    Field{
        {"ddp.find_unused_parameters", boolean, "false", "", "Look for parameters that a step does not use."},
        in<&JobSpec::ddp, &DdpSpec::find_unused_parameters>},
    Field{
        {"ddp.static_graph", boolean, "false", "", "Every step uses the same parameters in the same order."},
        in<&JobSpec::ddp, &DdpSpec::static_graph>},
    Field{{"ddp.comm_hook", choice, "none", "none | fp16 | bf16", "Send gradients in 16 bits.", "powersgd"},
          in<&JobSpec::ddp, &DdpSpec::comm_hook>},
    Field{{"ddp.shard_optimizer", boolean, "false", "",
           "Each rank updates its share of the parameters (ZeRO's first stage)."},
          in<&JobSpec::ddp, &DdpSpec::shard_optimizer>},

    Field{{"eval", section, "", "", "Evaluation on the test set, by all ranks, exact."}, none},
    Field{{"eval.batch_size", integer, "1000", ">= 1, <= 16777216", "Samples in a batch, per rank."},
          in<&JobSpec::eval, &EvalSpec::batch_size>},
    Field{{"eval.every", integer, "1", ">= 0, <= 1000000",
           "Evaluate after this many epochs; 0: only at the end."},
          in<&JobSpec::eval, &EvalSpec::every>},

    Field{{"timeouts", section, "", "", "How long to wait before giving up."}, none},
    Field{{"timeouts.rendezvous", duration, "5min", kWait, "For all ranks to come."},
          in<&JobSpec::timeouts, &TimeoutSpec::rendezvous>},
    Field{{"timeouts.init", duration, "5min", kWait, "For the backend to connect the ranks."},
          in<&JobSpec::timeouts, &TimeoutSpec::init>},
    Field{{"timeouts.collective", duration, "30min", kWait, "For one collective operation."},
          in<&JobSpec::timeouts, &TimeoutSpec::collective>},
    Field{{"timeouts.shutdown", duration, "5s", kWait, "From the request to stop until ranks are killed."},
          in<&JobSpec::timeouts, &TimeoutSpec::shutdown>},

    Field{{"metrics", section, "", "", "What is told while the job runs."}, none},
    Field{{"metrics.interval", duration, "1s", ">= 10ms, <= 24h",
           "Between two lines of progress where there is no terminal."},
          in<&JobSpec::metrics, &MetricsSpec::interval>},

    Field{{"nodes", section, "", "", "Where ranks run."}, none},
    Field{{"nodes.hosts", list_of_text, "[]", "HOST or HOST:SLOTS",
           "Machines and how many ranks each takes, rank 0's first; empty: world_size split evenly."},
          in<&JobSpec::nodes, &NodesSpec::hosts>},
    Field{{"nodes.interface", text, "''", "a network interface",
           "What backends talk over; empty: the one that routes to rank 0."},
          in<&JobSpec::nodes, &NodesSpec::interface>},
    Field{{"nodes.bind_cores", boolean, "false", "", "Pin each rank to its share of the machine's cores."},
          in<&JobSpec::nodes, &NodesSpec::bind_cores>},
    Field{{"nodes.threads", integer, "0", ">= 0, <= 4096",
           "Compute threads a rank (OMP_NUM_THREADS); 0: cores divided by local ranks."},
          in<&JobSpec::nodes, &NodesSpec::threads>},
};

constexpr std::array<std::string_view, 7> kLaterKeys{
    "schedule", "precision", "accumulate", "clip_grad_norm", "checkpoint", "restarts", "transforms"};

constexpr auto kKeys = [] {
  std::array<KeyInfo, kFields.size()> keys{};
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = kFields[i].key;
  return keys;
}();

}  // namespace

std::span<const Field> fields() { return kFields; }

const Field* find_field(std::string_view path) {
  const auto found = std::find_if(kFields.begin(), kFields.end(),
                                  [&](const Field& field) { return field.key.path == path; });
  return found == kFields.end() ? nullptr : &*found;
}

std::vector<std::string_view> keys_in(std::string_view section) {
  std::vector<std::string_view> names;
  for (const Field& field : kFields) {
    const std::size_t dot = field.key.path.find('.');
    const bool nested = dot != std::string_view::npos;
    if (section.empty() && !nested) names.push_back(field.key.path);
    if (nested && field.key.path.substr(0, dot) == section) names.push_back(field.key.path.substr(dot + 1));
  }
  return names;
}

std::span<const std::string_view> later_keys() { return kLaterKeys; }

std::vector<std::string_view> choices(std::string_view text) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    const std::size_t end = text.find(" | ");
    result.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 3);
  }
  return result;
}

}  // namespace job

std::span<const KeyInfo> job_keys() { return job::kKeys; }

std::string_view to_string(KeyType type) {
  switch (type) {
    case KeyType::integer: return "integer";
    case KeyType::number: return "number";
    case KeyType::boolean: return "true or false";
    case KeyType::text: return "text";
    case KeyType::choice: return "choice";
    case KeyType::duration: return "duration";
    case KeyType::size: return "size";
    case KeyType::list_of_integers: return "list of integers";
    case KeyType::list_of_text: return "list of texts";
    case KeyType::section: return "section";
  }
  return "";
}

std::string job_keys_markdown() {
  const auto escaped = [](std::string_view text) {
    std::string result;
    for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
    return result;
  };
  std::string table = "| key | type | default | values | meaning |\n|---|---|---|---|---|\n";
  for (const KeyInfo& key : job_keys()) {
    const bool is_section = key.type == KeyType::section;
    const std::string fallback = is_section             ? ""
                                 : key.fallback.empty() ? "required"
                                                        : fmt::format("`{}`", key.fallback);
    table += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.path, to_string(key.type), fallback,
                         escaped(key.range), key.doc);
  }
  return table;
}

}  // namespace dtorch
