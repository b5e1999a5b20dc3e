// What a spec means, and the mistakes a new user makes in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <sstream>

#include "core/job/load.h"

namespace dtorch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kGood = "version: 1\nmodel: mlp\ndataset: mnist\n";

/** One wrong spec: what is put below (or, with a version line of its own, in place of) the good one, and its
 * only problem. */
struct Mistake {
  const char* text;
  int line, column;
  const char* message;
  const char* help;
};

// Lines count from the end of kGood, which has three.
const Mistake kMistakes[] = {
    {"optimzer: {lr: 1}", 4, 1, "unknown key 'optimzer'", "did you mean 'optimizer'?"},
    {"optimizer: {learning_rate: 1}", 4, 13, "unknown key 'optimizer.learning_rate'", "type, lr, momentum"},
    {"lr: 0.1", 4, 1, "unknown key 'lr'", "did you mean 'optimizer.lr'?"},
    {"batch_size: 64", 4, 1, "unknown key 'batch_size'", "did you mean 'loader.batch_size'?"},
    {"optimizer.lr: 0.1", 4, 1, "unknown key 'optimizer.lr'", "nest it: optimizer: {lr: ...}"},
    {"Epochs: 3", 4, 1, "unknown key 'Epochs'", "did you mean 'epochs'?"},
    {"world-size: 2", 4, 1, "unknown key 'world-size'", "did you mean 'world_size'?"},
    {"extend: other.yaml", 4, 1, "unknown key 'extend'", "did you mean 'extends'?"},
    {"epochs: five", 4, 9, "'epochs' must be an integer, not the text 'five'", ""},
    {"epochs: 1.5", 4, 9, "'epochs' must be an integer, not the number 1.5", "whole number"},
    {"epochs: 1e3", 4, 9, "'epochs' must be an integer, not the number 1e3", "whole number"},
    {"epochs: 010", 4, 9, "'epochs' must be an integer, not the number 010", "leading zeros"},
    {"epochs: 0x10", 4, 9, "'epochs' must be an integer, not the text '0x10'", ""},
    {"epochs: true", 4, 9, "'epochs' must be an integer, not the truth value true", ""},
    {"epochs: '5'", 4, 9, "'epochs' must be an integer, not the text '5'", "remove the quotes"},
    {"epochs: 0", 4, 9, "'epochs' must be >= 1, <= 1000000, not 0", ""},
    {"epochs: -3", 4, 9, "'epochs' must be >= 1, <= 1000000, not -3", ""},
    {"epochs: 99999999999999999999", 4, 9, "'epochs' must be >= 1, <= 1000000, not 99999999999999999999", ""},
    {"epochs:", 4, 1, "'epochs' must be an integer, not nothing", ""},
    {"epochs: [1]", 4, 9, "'epochs' must be an integer, not a list", ""},
    {"epochs: {n: 1}", 4, 9, "'epochs' must be an integer, not a section", ""},
    {"seed: -1", 4, 7, "'seed' must be >= 0, not -1", ""},
    {"world_size: 0", 4, 13, "'world_size' must be >= 1, <= 65536, not 0", ""},
    {"optimizer: {lr: \"0.1\"}", 4, 17, "'optimizer.lr' must be a number, not the text '0.1'",
     "remove the quotes"},
    {"optimizer:\n  lr: 0,1", 5, 7, "'optimizer.lr' must be a number, not the text '0,1'", ""},
    {"optimizer: {lr: .nan}", 4, 17, "'optimizer.lr' must be a finite number, not .nan", ""},
    {"optimizer: {lr: -.inf}", 4, 17, "'optimizer.lr' must be a finite number, not -.inf", ""},
    {"optimizer: {lr: 1e999}", 4, 17, "'optimizer.lr' must be > 0, <= 1e6, not 1e999", ""},
    {"optimizer: {lr: true}", 4, 17, "'optimizer.lr' must be a number, not the truth value true", ""},
    {"optimizer:\n  momentum: -0.9", 5, 13, "'optimizer.momentum' must be >= 0, <= 1, not -0.9", ""},
    {"optimizer: sdg", 4, 12, "unknown optimizer.type 'sdg'", "did you mean 'sgd'?"},
    {"optimizer: adam", 4, 12, "optimizer.type 'adam' is not available yet in this version",
     "available: sgd"},
    {"optimizer: {nesterov: true}", 4, 23, "nesterov needs a momentum above 0", "optimizer.momentum"},
    {"ddp: {shard_optimizer: true, static_graph: true}", 4, 24, "updates all parameters at every step",
     "ddp.static_graph"},
    {"ddp: {find_unused_parameters: true, shard_optimizer: true}", 4, 54,
     "updates all parameters at every step", "ddp.find_unused_parameters"},
    {"optimizer: {momentum: 0.9, nesterov: true, dampening: 0.1}", 4, 38, "nesterov needs dampening 0",
     "dampening"},
    {"optimizer: [sgd]", 4, 12, "'optimizer' must be a section, not a list", "its keys: type, lr"},
    {"sampler: {shuffle: yes}", 4, 20, "'sampler.shuffle' must be true or false, not the text 'yes'",
     "write true"},
    {"sampler: {shuffle: 'true'}", 4, 20, "'sampler.shuffle' must be true or false, not the text 'true'",
     "remove the quotes"},
    {"sampler: {shuffle: 1}", 4, 20, "'sampler.shuffle' must be true or false, not the number 1",
     "write true"},
    {"name: 7", 4, 7, "'name' must be text, not the number 7", "put it in quotes: '7'"},
    {"name: a/b", 4, 7, "'name' must be 1 to 128 characters, no '/'", ""},
    {"backend: nccl", 4, 10, "backend 'nccl' is not available yet in this version",
     "available: auto, gloo, tcp, shm"},
    {"backend: ./mine.so", 4, 10, "backend modules ('./mine.so') are not available yet in this version",
     "available: auto, gloo, tcp, shm"},
    {"backend: glo", 4, 10, "unknown backend 'glo'", "did you mean 'gloo'?"},
    {"device: cuda:0", 4, 9, "device 'cuda:0' is not available: this build has no CUDA device support yet",
     "available: auto, cpu"},
    {"precision: bf16", 4, 1, "'precision' is not available yet in this version", ""},
    {"checkpoint: {every: 1epoch}", 4, 1, "'checkpoint' is not available yet in this version", ""},
    {"timeouts: {collective: 30}", 4, 24,
     "'timeouts.collective' must be a duration such as 30s, 500ms, 2min or 1h, not the number 30",
     "add a unit: 30s"},
    {"timeouts: {collective: 1ms}", 4, 24, "'timeouts.collective' must be >= 10ms, <= 720h, not 1ms", ""},
    {"timeouts: {collective: soon}", 4, 24, "'timeouts.collective' must be a duration", ""},
    {"ddp: {bucket_cap: 25}", 4, 19,
     "'ddp.bucket_cap' must be a size such as 25MiB, 512KiB or 1GB, not the number 25", "add a unit: 25MiB"},
    {"ddp: {bucket_cap: 1B}", 4, 19, "'ddp.bucket_cap' must be >= 1KiB, <= 64GiB, not 1B", ""},
    {"init_method: localhost:1", 4, 14, "init_method 'localhost:1' is not a URL", "tcp://HOST:PORT"},
    {"init_method: tpc://localhost:1", 4, 14, "init_method: unknown scheme 'tpc'", "did you mean 'tcp://'?"},
    {"init_method: tcp://localhost", 4, 14, "init_method has no port", "tcp://HOST:PORT"},
    {"init_method: tcp://:1", 4, 14, "init_method has no host", ""},
    {"init_method: tcp://localhost:65536", 4, 14, "init_method: '65536' is not a port", "65535"},
    {"init_method: tcp://localhost:1x", 4, 14, "init_method: '1x' is not a port", ""},
    {"init_method: tcp://::1:29500", 4, 14, "init_method: an IPv6 address stands in brackets", "[::1]"},
    {"init_method: 'tcp://[::1:29500'", 4, 14, "init_method: the '[' of an IPv6 address has no ']'", ""},
    {"init_method: 'tcp://[12.5]:29500'", 4, 14, "init_method: '12.5' is not an IPv6 address", ""},
    {"init_method: file://tmp/x", 4, 14, "init_method: the path 'tmp/x' is not absolute", "file:///tmp/x"},
    {"init_method: shared_filesystem://", 4, 14, "init_method: shared_filesystem:// needs an absolute path",
     ""},
    {"init_method: env://x", 4, 14, "init_method: nothing stands after env://", "MASTER_ADDR"},
    {"world_size: 2\ninit_method: tcp://localhost:0?world_size=5", 5, 14,
     "'init_method' says world_size=5, but 'world_size' is 2", "leave it out"},
    {"world_size: 2\nnodes: {hosts: [a, b]}\ninit_method: tcp://0.0.0.0:29500", 6, 14,
     "other machines cannot reach 0.0.0.0", "tcp://a:29500"},
    {"world_size: 3\nnodes: {hosts: ['a:2', b]}\ninit_method: env://\nworld: 1", 7, 1, "unknown key 'world'",
     ""},
    {"world_size: 4\nnodes: {hosts: ['a:2', b]}\ninit_method: env://", 4, 13,
     "'world_size' is 4, the slots of 'nodes.hosts' add up to 3", "set world_size: 3"},
    {"world_size: 2\nnodes: {hosts: [a, b]}", 5, 16, "other machines cannot reach 127.0.0.1",
     "tcp://a:29500"},
    {"world_size: 2\nnodes: {hosts: [a, b]}\ninit_method: tcp://a:0", 6, 14,
     "several hosts need a fixed port, not 0", ""},
    {"world_size: 2\nnodes: {hosts: [a, a]}\ninit_method: env://", 5, 20, "host 'a' is named twice", ""},
    {"nodes: {hosts: ['a:0']}", 4, 17, "'a:0' is not a host", "HOST:SLOTS"},
    {"nodes: {hosts: a}", 4, 16, "'nodes.hosts' must be a list of hosts, not the text 'a'", ""},
    {"nodes: {interface: an-interface-name-too-long}", 4, 20,
     "'an-interface-name-too-long' is not the name of a network interface", ""},
    {"eval: {batch_size: 0}", 4, 20, "'eval.batch_size' must be >= 1", ""},
};

const Mistake kWholeSpecs[] = {
    {"version: 2\nmodel: mlp\ndataset: mnist", 1, 10, "'version' must be 1, not 2", ""},
    {"model: mlp\ndataset: mnist", 1, 1, "missing key 'version'", "values: 1"},
    {"version: 1\ndataset: mnist", 1, 1, "missing key 'model'", ""},
    {"version: 1\nmodel: mlp", 1, 1, "missing key 'dataset'", ""},
    {"version: 1\nmodel: mlp\ndataset: {root: x}", 3, 1, "missing key 'dataset.type'",
     "mnist | fashion_mnist | idx"},
    {"version: 1\nmodel: mlp\ndataset: cifar10", 3, 10,
     "dataset.type 'cifar10' is not available yet in this version", "mnist, fashion_mnist, idx"},
    {"version: 1\nmodel: lenet\ndataset: mnist", 2, 8,
     "model.type 'lenet' is not available yet in this version", "available: mlp"},
    {"version: 1\nmodel: {type: mlp, layers: [784]}\ndataset: mnist", 2, 28,
     "'model.layers' needs at least 2 widths, input and output, not 1", ""},
    {"version: 1\nmodel: {type: mlp, layers: []}\ndataset: mnist", 2, 28,
     "'model.layers' needs at least 2 widths, input and output, not 0", ""},
    {"version: 1\nmodel: {type: mlp, layers: [784, 0, 10]}\ndataset: mnist", 2, 34,
     "'model.layers.1' must be >= 1, <= 16777216, not 0", ""},
    {"version: 1\nmodel: {type: mlp, layers: [784, x, 10]}\ndataset: mnist", 2, 34,
     "'model.layers.1' must be an integer, not the text 'x'", ""},
    {"version: 1\nmodel: {type: mlp, layers: 784-512-10}\ndataset: mnist", 2, 28,
     "'model.layers' must be a list of integers, not the text '784-512-10'", ""},
    {"version: 1\nmodel: {type: mlp, layers: [32, 10]}\ndataset: mnist", 2, 29,
     "the model takes 32 inputs, an image of mnist has 784", "28 x 28"},
    {"version: 1\nmodel: {type: mlp, layers: [784, 100]}\ndataset: fashion_mnist", 2, 34,
     "the model has 100 outputs, fashion_mnist has 10 classes", "must be 10"},
    {"version: 1\nmodel: {type: mlp, activation: rleu}\ndataset: mnist", 2, 32,
     "unknown model.activation 'rleu'", "did you mean 'relu'?"},
    {"version: 1\nmodel: mlp\ndataset: {type: idx, train_images: a, train_labels: b, test_images: c}", 3, 17,
     "a dataset of type idx needs 'dataset.test_labels'", ""},
    {"version: 1\nmodel: mlp\ndataset: {type: mnist, test_labels: c}", 3, 37,
     "'dataset.test_labels' is only for a dataset of type idx, not mnist", ""},
    {"version: 1\nmodel: mlp\ndataset: {type: mnist, fallback: mnist}", 3, 34,
     "the fallback is the dataset itself", ""},
    {"version: 1\nmodel: mlp\ndataset: {type: mnist, mirrors: [ftp://x/]}", 3, 34,
     "mirror 'ftp://x/' is not an address", "http://"},
    {"version: 1\nmodel: mlp\ndataset: {type: mnist, download: ja}", 3, 34,
     "'dataset.download' must be true or false, not the text 'ja'", ""},
};

void expect_only_problem(const std::string& text, const Mistake& mistake) {
  try {
    parse_job(text, "spec.yaml");
    ADD_FAILURE() << "accepted:\n" << text;
  } catch (const SpecError& error) {
    ASSERT_EQ(error.diagnostics().size(), 1U) << error.what();
    const Diagnostic& d = error.diagnostics()[0];
    EXPECT_EQ(d.line, mistake.line) << error.what();
    EXPECT_EQ(d.column, mistake.column) << error.what();
    EXPECT_THAT(d.message, HasSubstr(mistake.message));
    EXPECT_THAT(d.help, HasSubstr(mistake.help));
    EXPECT_EQ(error.kind(), ErrorKind::spec);
  }
}

TEST(SpecTest, EveryMistakeIsFoundAtItsPlace) {
  for (const Mistake& mistake : kMistakes) {
    SCOPED_TRACE(mistake.text);
    expect_only_problem(kGood + mistake.text + "\n", mistake);
    expect_only_problem(kGood + mistake.text, mistake);  // no newline at the end
  }
  for (const Mistake& mistake : kWholeSpecs) {
    SCOPED_TRACE(mistake.text);
    expect_only_problem(mistake.text, mistake);
  }
}

TEST(SpecTest, AllMistakesAreReportedInOrder) {
  try {
    parse_job(
        "version: 1\nmodel: mlp\ndataset: mnits\nepochs: x\noptimzer: {}\nloader: {batch_size: 0, worker: "
        "1}\n",
        "spec", {"seed=x", "eval.evry=1"});
    FAIL();
  } catch (const SpecError& error) {
    std::vector<std::string> found;
    for (const Diagnostic& d : error.diagnostics())
      found.push_back(d.file + ":" + std::to_string(d.line) + ":" + std::to_string(d.column) + " " +
                      d.message);
    EXPECT_THAT(found, ElementsAre("spec:3:10 unknown dataset.type 'mnits'",
                                   "spec:4:9 'epochs' must be an integer, not the text 'x'",
                                   "spec:5:1 unknown key 'optimzer'",
                                   HasSubstr("spec:6:22 'loader.batch_size' must be"),
                                   "spec:6:25 unknown key 'loader.worker'",
                                   "-s seed=x:0:0 'seed' must be an integer, not the text 'x'",
                                   "-s eval.evry=1:0:0 unknown key 'eval.evry'"));
  }
}

TEST(SpecTest, RefusedValuesCauseNoFollowUps) {
  for (const char* text :
       {"optimizer: {nesterov: true, momentum: x}\n", "world_size: x\nnodes: {hosts: ['a:2']}\n",
        "nodes: {hosts: ['a:2', 'b:x']}\n", "nodes: {hosts: [a, b]}\nworld_size: 2\ninit_method: 5\n"}) {
    try {
      parse_job(kGood + text, "spec");
      ADD_FAILURE() << text;
    } catch (const SpecError& error) {
      EXPECT_EQ(error.diagnostics().size(), 1U) << error.what();
    }
  }
}

TEST(SpecTest, ReadsEveryKey) {
  const JobSpec spec = parse_job(R"(version: 1
name: "all of it"
backend: gloo
init_method: tcp://[fe80::1%eth0]:29500?rank=0
world_size: 6
seed: 9007199254740993
device: cpu
model: {type: mlp, layers: [12, 7, 3], activation: none}
dataset:
  type: idx
  root: "data dir"
  train_images: a.gz
  train_labels: b
  test_images: /c
  test_labels: d
loader: {batch_size: 32, workers: 0}
sampler: {shuffle: false, drop_last: True}
loss: {type: cross_entropy}
optimizer: {type: sgd, lr: 1e-3, momentum: .9, dampening: 0.0, weight_decay: 1.e-4, nesterov: true}
epochs: 3
ddp: {bucket_cap: 1.5MiB, find_unused_parameters: true, static_graph: true, comm_hook: bf16}
eval: {batch_size: 500, every: 0}
timeouts: {rendezvous: 1h, init: 2min, collective: 500ms, shutdown: 1.5s}
metrics: {interval: "10s"}
nodes: {hosts: [a:2, '[::1]:3', c], interface: eth0, bind_cores: true, threads: 4}
)",
                                 "spec");
  EXPECT_EQ(spec.name, "all of it");
  EXPECT_EQ(spec.seed, 9007199254740993);
  EXPECT_EQ(spec.model.layers, (std::vector<std::int64_t>{12, 7, 3}));
  EXPECT_EQ(spec.dataset.root, "data dir");
  EXPECT_EQ(spec.dataset.test_images, "/c");
  EXPECT_TRUE(spec.sampler.drop_last);
  EXPECT_EQ(spec.optimizer.lr, 1e-3);
  EXPECT_EQ(spec.optimizer.momentum, 0.9);
  EXPECT_EQ(spec.optimizer.weight_decay, 1e-4);
  EXPECT_EQ(spec.ddp.bucket_cap, 3 << 19);
  EXPECT_EQ(spec.ddp.comm_hook, "bf16");
  EXPECT_EQ(spec.eval.every, 0);
  EXPECT_EQ(spec.timeouts.collective, std::chrono::milliseconds(500));
  EXPECT_EQ(spec.timeouts.shutdown, std::chrono::milliseconds(1500));
  EXPECT_EQ(spec.metrics.interval, std::chrono::seconds(10));
  ASSERT_EQ(spec.nodes.hosts.size(), 3U);
  EXPECT_EQ(spec.nodes.hosts[1].name, "::1");
  EXPECT_EQ(spec.nodes.hosts[1].slots, 3);
  EXPECT_EQ(spec.nodes.hosts[2].slots, 1);
  EXPECT_EQ(parse_job(to_yaml(spec), "canonical"), spec);
}

TEST(SpecTest, SectionsMayBeEmpty) {
  EXPECT_EQ(parse_job(kGood + "optimizer:\n  # lr: 1\nloader: {}\n", "spec"), parse_job(kGood, "spec"));
}

TEST(OverrideTest, SetsWhatItNames) {
  const JobSpec spec = parse_job(
      kGood + "optimizer: sgd\nnodes: {hosts: [x]}\n", "spec",
      {"optimizer.lr=0.5", "model.layers.1=256", "nodes.hosts.0=a:1", "nodes.hosts.1=b:2", "world_size=3",
       "init_method=tcp://a:1", "name=a=b", "dataset.mirrors=[http://x/, 'https://y/']",
       "loader={batch_size: 7}", "model=mlp", "epochs=2", "epochs=4"});
  EXPECT_EQ(spec.optimizer.lr, 0.5);
  EXPECT_EQ(spec.model.layers, (std::vector<std::int64_t>{784, 256, 10}));
  EXPECT_EQ(spec.nodes.hosts[1].name, "b");
  EXPECT_EQ(spec.name, "a=b");
  EXPECT_EQ(spec.dataset.mirrors.size(), 2U);
  EXPECT_EQ(spec.loader.batch_size, 7);
  EXPECT_EQ(spec.epochs, 4);  // the last one wins
}

TEST(OverrideTest, ErrorsCiteTheFlag) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"optimizer.lr=abc", "'optimizer.lr' must be a number, not the text 'abc'"},
      {"optimizr.lr=1", "unknown key 'optimizr'"},
      {"optimizer.lrr=1", "unknown key 'optimizer.lrr'"},
      {"epochs", "an override is written key=value"},
      {"=1", "an override is written key=value"},
      {"a..b=1", "an override is written key=value"},
      {"epochs.x=1", "'epochs' must be an integer, not a section"},
      {"version.x=1", "'version' is a single value and has no 'x'"},
      {"model.layers.5=1", "'model.layers' is a list of 3: '5' is none of its places"},
      {"model.layers.-1=1", "'model.layers' is a list of 3: '-1' is none of its places"},
      {"seed=*x", "not valid YAML"},
      {"seed=&x 1", "YAML anchors"},
      {"seed={a: 1, a: 2}", "duplicate key 'a'"},
      {"seed=[", "not valid YAML"},
      {"name=\xff", "not UTF-8 text"},
      {"seed=1\n---\n2", "a second YAML document"},
      {"extends=x.yaml", "'extends' stands in a file"},
      {"epochs=", "'epochs' must be an integer, not nothing"},
  };
  for (const auto& [flag, message] : cases) {
    SCOPED_TRACE(flag);
    try {
      parse_job(kGood, "spec", {flag});
      ADD_FAILURE() << "accepted";
    } catch (const SpecError& error) {
      EXPECT_EQ(error.diagnostics()[0].file, "-s " + flag);
      EXPECT_EQ(error.diagnostics()[0].line, 0);
      EXPECT_THAT(error.diagnostics()[0].message, HasSubstr(message));
    }
  }
  try {
    parse_job(kGood, "spec", {"optimizer.lr=abc"});
  } catch (const SpecError& error) {
    EXPECT_STREQ(error.what(),
                 "-s optimizer.lr=abc: error: 'optimizer.lr' must be a number, not the text 'abc'");
  }
}

TEST(CanonicalTest, ReadsBackAsTheSameSpec) {
  JobSpec spec;
  spec.dataset.type = "mnist";
  for (const char* name :
       {"a",  "true", "~",           "null",  "12",    "1e5",    "-",   "- a",  "a: b", "#x", "'",   "\"",
        "\\", "\\n",  "${env:HOME}", "$${x}", " lead", "trail ", "ä€😀", "*x",   "&x",   "!x", "[a]", "{a}",
        "@",  "`",    "%",           "|",     ">",     "a #b",   "? a", ".inf", "0x1f", "=",  "<<"}) {
    spec.name = name;
    spec.dataset.root = std::string(name) + "/x";
    spec.dataset.mirrors = {std::string("http://h/") + name};
    EXPECT_EQ(parse_job(to_yaml(spec), "canonical"), spec) << to_yaml(spec);
  }
  for (const double value : {0.1, 1e-7, 1.0 / 3, 123456.789, 5e-324, 1e6, 0.30000000000000004}) {
    spec.name = "numbers";
    spec.optimizer.lr = value;
    EXPECT_EQ(parse_job(to_yaml(spec), "canonical").optimizer.lr, value);
  }
}

TEST(CanonicalTest, EqualSpecsHaveEqualText) {
  const std::string a = to_yaml(parse_job(kGood + "seed: 1\nepochs: 2\n", "a"));
  const std::string b = to_yaml(
      parse_job("dataset: {type: mnist}\nepochs: 2\nmodel: {type: 'mlp'}\nseed: 1\nversion: 1\n", "b"));
  EXPECT_EQ(a, b);
  EXPECT_NE(a, to_yaml(parse_job(kGood, "c")));
}

TEST(ConfigsTest, RunAsTheyStand) {
  for (const auto& entry : std::filesystem::directory_iterator(DTORCH_SOURCE "/configs")) {
    const JobSpec spec = load_job(entry.path().string(), {});
    EXPECT_EQ(parse_job(to_yaml(spec), "canonical"), spec) << entry.path();
  }
}

TEST(ConfigsTest, TutorialIsTheTutorial) {
  const JobSpec spec = load_job(DTORCH_SOURCE "/configs/tutorial.yaml", {});
  EXPECT_EQ(spec.backend, "gloo");
  EXPECT_EQ(spec.init_method, "tcp://localhost:23456");
  EXPECT_EQ(spec.world_size, 4);
  EXPECT_EQ(spec.model.activation, "none");
  EXPECT_EQ(spec.model.layers, (std::vector<std::int64_t>{784, 512, 10}));
  EXPECT_EQ(spec.optimizer, (OptimizerSpec{"sgd", 0.01, 0, 0, 0, false}));
  EXPECT_EQ(spec.loader.batch_size, 64);
  EXPECT_TRUE(spec.sampler.shuffle);
}

/** Damages a text: bytes changed, removed, doubled, lines moved, words from elsewhere in the text put in. */
std::string damaged(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(n, 1));
  };
  static const std::vector<std::string> kPieces{":",
                                                "{",
                                                "}",
                                                "[",
                                                "]",
                                                ",",
                                                "- ",
                                                "\n",
                                                "  ",
                                                "\t",
                                                "&a ",
                                                "*a",
                                                "!!int ",
                                                "<<: ",
                                                "---\n",
                                                "...\n",
                                                "? ",
                                                "|\n",
                                                ">\n",
                                                "'",
                                                "\"",
                                                "#",
                                                "%",
                                                "${env:",
                                                "}",
                                                "\\",
                                                "\xff",
                                                "\xc3\xa4",
                                                "\0",
                                                "\x1b",
                                                "null",
                                                "true",
                                                "1e999",
                                                "-1",
                                                "\r",
                                                "\xEF\xBB\xBF",
                                                "\xE2\x80\xA8",
                                                "type: "};
  for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min(below(12), text.size() - at);
    switch (random() % 5) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(at, text.substr(below(text.size()), below(30))); break;
      case 2: text.insert(at, kPieces[below(kPieces.size())]); break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(random() & 0xFF);
        break;
      default: text.replace(at, length, kPieces[below(kPieces.size())]); break;
    }
  }
  return text;
}

TEST(FuzzTest, DamagedSpecsAreReadOrRefusedAtAPlaceInThem) {
  std::mt19937 random(20260);  // fixed: a failure repeats itself
  std::vector<std::string> seeds{kGood};
  JobSpec full;
  full.dataset.type = "mnist";
  seeds.push_back(to_yaml(full));
  for (const Mistake& mistake : kMistakes) seeds.push_back(kGood + mistake.text + "\n");
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string text = damaged(seeds[static_cast<std::size_t>(round) % seeds.size()], random);
    try {
      const JobSpec spec = parse_job(text, "spec");
      ASSERT_EQ(parse_job(to_yaml(spec), "canonical"), spec) << text;
    } catch (const SpecError& error) {
      ++refused;
      ASSERT_FALSE(error.diagnostics().empty());
      const int lines = static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 1;
      for (const Diagnostic& d : error.diagnostics()) {
        ASSERT_TRUE(d.line >= 1 && d.line <= lines) << text << "\n" << error.what();
        std::istringstream stream(text);
        std::string line;
        for (int i = 0; i < d.line; ++i) std::getline(stream, line);
        ASSERT_TRUE(d.column >= 1 && d.column <= static_cast<int>(line.size()) + 1) << text << "\n"
                                                                                    << error.what();
        ASSERT_GE(d.length, 1);
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace dtorch
