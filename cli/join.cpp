// `dtorch join`: lends this machine to a job that waits.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/run_options.h"
#include "core/base/endpoint.h"
#include "core/job/load.h"
#include "core/launch/launcher.h"

namespace dtorch::cli {
namespace {

namespace fs = std::filesystem;

struct JoinArguments {
  RunOptions options;
  double timeout = 300;
  bool allow_paths = false;
  OutputFlags output;
};

bool inside_here(const std::string& path) {
  std::error_code error;
  const fs::path here = fs::canonical(".", error);
  const fs::path whole = fs::weakly_canonical(here / path, error);
  return !error && std::mismatch(here.begin(), here.end(), whole.begin(), whole.end()).first == here.end();
}

/** The spec is another machine's: it may neither run code from a file nor read what lies outside this folder. */
void refuse_foreign_paths(const JobSpec& spec) {
  constexpr std::array<std::string_view, 6> kBuiltIn{"auto", "gloo", "nccl", "mpi", "tcp", "shm"};
  const std::string help = "look at the spec, then join with --allow-paths if you trust it";
  if (std::find(kBuiltIn.begin(), kBuiltIn.end(), spec.backend) == kBuiltIn.end()) {
    throw Error(ErrorKind::not_allowed, fmt::format("the job wants to load the module '{}'", spec.backend),
                help);
  }
  if (spec.init_method.rfind("tcp://", 0) != 0) {
    throw Error(
        ErrorKind::not_allowed,
        fmt::format("the job wants its ranks to meet at '{}', not where it was joined", spec.init_method),
        "only jobs of tcp:// are joined");
  }
  const DatasetSpec& data = spec.dataset;
  std::vector<std::string> paths{data.root};
  for (const auto& file : {data.train_images, data.train_labels, data.test_images, data.test_labels})
    paths.push_back((fs::path(data.root) / file).string());
  for (const auto& path : paths) {
    if (inside_here(path)) continue;
    throw Error(
        ErrorKind::not_allowed,
        fmt::format("the job wants to read '{}', which is outside {}", path, fs::current_path().string()),
        help);
  }
}

JobSpec accept_spec(RunOptions& options, bool allow_paths) {
  JobSpec spec = parse_resolved(options.spec_yaml, "node 0's spec");
  const auto& nodes = options.ranks_per_node;
  const int ranks = std::accumulate(nodes.begin(), nodes.end(), 0);
  if (ranks != spec.world_size) {
    throw Error(ErrorKind::disagree,
                fmt::format("node 0's offer contradicts itself: its nodes have {} ranks, world_size is {}",
                            ranks, spec.world_size));
  }
  if (!allow_paths) refuse_foreign_paths(spec);
  take_spec(options, spec);
  return spec;
}

int run_join(JoinArguments& arguments) {
  RunOptions& options = arguments.options;
  // What is wrong with it is said before anything starts.
  if (parse_endpoint(options.join_endpoint).port == 0)
    throw Error(ErrorKind::usage, fmt::format("no job waits at '{}': port 0 is none", options.join_endpoint),
                "name the port of the job's init_method");
  options.executable = executable_path();
  options.init_method = options.join_endpoint.rfind("tcp://", 0) == 0 ? options.join_endpoint
                                                                      : "tcp://" + options.join_endpoint;
  options.rendezvous_timeout = to_milliseconds(arguments.timeout);
  RunViewOptions nothing_yet;
  nothing_yet.style = arguments.output.style();
  nothing_yet.show_output = options.log_dir.empty();
  RunView view(nothing_yet);
  options.accept = [&arguments, &view](RunOptions& filled) {
    const JobSpec spec = accept_spec(filled, arguments.allow_paths);
    view.describe(view_options(spec, arguments.output, /*dry_run=*/false));
  };
  return view.finish(run_job(options, view));
}

}  // namespace

void add_join(CLI::App& app, Chosen& chosen) {
  auto arguments = std::make_shared<JoinArguments>();
  RunOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("join", "Lends this machine to a job that waits at node 0");
  command->add_option("ENDPOINT", options.join_endpoint, "tcp://HOST:PORT, the init_method of the job")
      ->required();
  command
      ->add_option("--slots", options.join_slots,
                   "How many ranks this machine takes at most (default: any number)")
      ->check(CLI::Range(1, 4096));
  command->add_flag("--allow-paths", arguments->allow_paths,
                    "Trust the spec with modules and files outside this folder");
  command->add_option("--timeout", arguments->timeout, "Seconds to wait for the job (default 300)")
      ->check(seconds_between(0.1, 1e6));
  command->add_option(
      "--log-dir", options.log_dir,
      "What ranks print goes to DIR/rankN.log and is not shown (its end is, should the rank fail)");
  arguments->output.add_to(*command);
  command->callback([arguments, &chosen] { chosen = [arguments] { return run_join(*arguments); }; });
}

}  // namespace dtorch::cli
