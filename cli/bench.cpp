// `dtorch bench`: times collectives over one or several backends.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_view.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/run_options.h"
#include "core/base/json_text.h"
#include "core/base/units.h"
#include "core/launch/launcher.h"

namespace dtorch::cli {
namespace {

constexpr std::size_t kMostSizes = 10'000;

struct BenchArguments {
  std::string operation;
  BenchRequest request;
  std::string smallest = "4";
  std::string largest = "64M";
  std::string increment;  ///< empty: sizes grow by the factor
  int factor = 4;
  double timeout = 300;
  int nnodes = 1;
  int node_rank = 0;
  bool csv = false;
  bool fit = false;
  std::string html;
  std::vector<std::string> expectations;
  OutputFlags output;
};

std::int64_t size_of_flag(const std::string& flag, const std::string& text) {
  const auto size = parse_binary_size(text);
  if (!size) {
    throw Error(ErrorKind::usage, fmt::format("{} '{}' is no size", flag, text),
                "write bytes, or a number with K, M, G, KiB, MiB, GiB");
  }
  return *size;
}

std::vector<std::int64_t> sizes_of(const BenchArguments& arguments) {
  const std::int64_t first = size_of_flag("-b", arguments.smallest);
  const std::int64_t last = size_of_flag("-e", arguments.largest);
  const std::int64_t add = arguments.increment.empty() ? 0 : size_of_flag("-i", arguments.increment);
  if (first < 1 || first > last) {
    throw Error(ErrorKind::usage,
                fmt::format("no size from -b {} to -e {}", arguments.smallest, arguments.largest),
                "give a first size of at least 1 byte that is not above the last");
  }
  if (!arguments.increment.empty() && add == 0)
    throw Error(ErrorKind::usage, "-i 0 never reaches the last size");
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = first; sizes.size() <= kMostSizes;) {
    sizes.push_back(size);
    // Asked before the step, which might not fit into a number.
    if (add != 0 ? add > last - size : size > last / arguments.factor) break;
    size = add != 0 ? size + add : size * arguments.factor;
  }
  if (sizes.size() > kMostSizes) {
    throw Error(ErrorKind::usage, fmt::format("more than {} sizes", kMostSizes),
                "take a larger step with -i, or -f");
  }
  return sizes;
}

/** nccl-tests' and PyTorch's names for a thing, to ours; a name of ours stays. */
std::string translated(const std::map<std::string, std::string>& names, const std::string& name) {
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

std::string type_name(const std::string& name) {
  return translated({{"half", "float16"},
                     {"float", "float32"},
                     {"double", "float64"},
                     {"fp16", "float16"},
                     {"bf16", "bfloat16"},
                     {"fp32", "float32"},
                     {"fp64", "float64"}},
                    name);
}

/** allreduce, all_reduce and all-reduce are one. */
std::vector<std::string> operations_of(const std::string& word) {
  if (word == "all") return bench_operations();
  std::string name;
  std::copy_if(word.begin(), word.end(), std::back_inserter(name),
               [](char c) { return c != '_' && c != '-'; });
  const auto& known = bench_operations();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    throw Error(ErrorKind::usage, fmt::format("no collective is named '{}'", word),
                fmt::format("one of {}, all", fmt::join(known, ", ")));
  }
  return {name};
}

std::vector<report::Expectation> expectations_of(const BenchArguments& arguments) {
  std::vector<report::Expectation> result;
  const BenchRequest& request = arguments.request;
  const auto has = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  for (const auto& text : arguments.expectations) {
    const auto expectation = report::parse_expectation(text);
    const bool covered = has(request.operations, expectation.operation) &&
                         has(request.sizes, expectation.bytes) &&
                         (expectation.backend.empty() || has(request.backends, expectation.backend));
    if (!covered) {
      throw Error(ErrorKind::usage, fmt::format("--expect '{}' speaks of nothing that will be timed", text),
                  "its collective, backend and size must be among those of -b, -e, -f, -i and --backends");
    }
    result.push_back(expectation);
  }
  return result;
}

void complete(BenchArguments& arguments) {
  BenchRequest& request = arguments.request;
  request.operations = operations_of(arguments.operation);
  request.sizes = sizes_of(arguments);
  request.type = type_name(request.type);
  request.reduction = translated({{"prod", "product"}}, request.reduction);
  if (request.root < 0 || request.root >= request.world_size) {
    throw Error(ErrorKind::usage,
                fmt::format("--root {} is not from 0 to {}", request.root, request.world_size - 1));
  }
  if (request.world_size % arguments.nnodes != 0) {
    throw Error(ErrorKind::usage, fmt::format("--world {} cannot be split evenly over {} nodes",
                                              request.world_size, arguments.nnodes));
  }
  if (arguments.node_rank < 0 || arguments.node_rank >= arguments.nnodes) {
    throw Error(ErrorKind::usage,
                fmt::format("--node-rank {} is not from 0 to {}", arguments.node_rank, arguments.nnodes - 1));
  }
  if (arguments.csv && arguments.output.json)
    throw Error(ErrorKind::usage, "--csv and --json exclude each other");
  request.collective_ms = to_milliseconds(arguments.timeout).count();
}

int time_collectives(BenchArguments& arguments) {
  complete(arguments);
  const BenchRequest& request = arguments.request;
  RunOptions options;
  options.executable = executable_path();
  options.bench = true;
  options.spec_yaml = json_text(request);
  options.init_method = request.init_method;
  options.ranks_per_node.assign(static_cast<std::size_t>(arguments.nnodes),
                                request.world_size / arguments.nnodes);
  options.node_rank = arguments.node_rank;
  options.bind_cores = false;
  options.collective_timeout = std::chrono::milliseconds(request.collective_ms);
  BenchView view({arguments.output.style(), request, arguments.csv, arguments.fit, arguments.html,
                  expectations_of(arguments)});
  if (request.world_size == 1)
    view.log(-1, "warning", "one rank has nobody to talk to: these are times of calls that move nothing");
  return view.finish(run_job(options, view));
}

void add_measure_options(CLI::App& command, BenchArguments& arguments) {
  BenchRequest& request = arguments.request;
  command.add_option("-b,--min-bytes", arguments.smallest, "First size: bytes, or with K, M, G (default 4)");
  command.add_option("-e,--max-bytes", arguments.largest, "Last size (default 64M)");
  command
      .add_option("-f,--step-factor", arguments.factor, "Each size is the last one times this (default 4)")
      ->check(CLI::Range(2, 1'000'000));
  command.add_option("-i,--step-bytes", arguments.increment,
                     "Each size is the last one plus this, instead of -f");
  command
      .add_option("-n,--iters", request.iterations,
                  "Timed calls a size (default: 20 to 1000, as the size allows)")
      ->check(CLI::Range(1, 10'000'000));
  command.add_option("-w,--warmup-iters", request.warmup, "Calls before them (default 5)")
      ->check(CLI::Range(0, 1'000'000));
  command.add_option("-c,--check", request.checks, "Calls whose result is compared (default 1; 0: none)")
      ->check(CLI::Range(0, 1'000'000));
  command.add_option("-d,--datatype", request.type, "Type of the elements (default float)")
      ->check(CLI::IsMember({"float", "double", "half", "bfloat16", "int8", "int32", "int64", "uint8", "bool",
                             "float16", "float32", "float64", "fp16", "bf16", "fp32", "fp64"}));
  command.add_option("-o,--op", request.reduction, "Reduction (default sum)")
      ->check(CLI::IsMember({"sum", "prod", "product", "min", "max", "avg", "band", "bor", "bxor"}));
  command.add_option("-r,--root", request.root, "Root of broadcast, reduce, gather and scatter (default 0)");
  command.add_flag("-R,--backend-memory", request.backend_memory,
                   "Buffers that the backend allocates, where it can");
}

}  // namespace

void add_bench(CLI::App& app, Chosen& chosen) {
  auto arguments = std::make_shared<BenchArguments>();
  BenchRequest& request = arguments->request;
  request.backends = {"auto"};
  request.init_method = "tcp://127.0.0.1:0";
  CLI::App* command = app.add_subcommand("bench", "Times a collective over one or several backends");
  command->add_option("OP", arguments->operation, fmt::format("{}, all", fmt::join(bench_operations(), ", ")))
      ->required();
  add_measure_options(*command, *arguments);
  command
      ->add_option("--backends", request.backends,
                   "Backends to time in turn, in one job: gloo,tcp (default auto)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--world", request.world_size, "Ranks, all nodes together (default 2)")
      ->check(CLI::Range(1, 65536));
  command->add_option("--nnodes", arguments->nnodes, "Machines; each runs this with its --node-rank")
      ->check(CLI::Range(1, 65536));
  command->add_option("--node-rank", arguments->node_rank, "This machine's number, from 0");
  command->add_option("--init-method", request.init_method, "Where ranks meet (default tcp://127.0.0.1:0)");
  command->add_option("--interface", request.interface, "Network interface or address of the backends");
  command->add_option("--timeout", arguments->timeout, "Seconds that a call may take (default 300)")
      ->check(seconds_between(0.001, 1e6));
  command->add_flag("--fit", arguments->fit, "Latency and bandwidth of each backend, fitted to the times");
  command
      ->add_option("--expect", arguments->expectations,
                   "allreduce@4MiB>=5GB/s or allreduce/tcp@4B<=9us; not met: exit 1")
      ->allow_extra_args(false);
  command->add_option("--html", arguments->html, "Writes a page with plots and all figures, for a browser");
  command->add_flag("--csv", arguments->csv, "CSV on standard output");
  arguments->output.add_to(*command);
  command->callback([arguments, &chosen] { chosen = [arguments] { return time_collectives(*arguments); }; });
}

}  // namespace dtorch::cli
