// `dtorch run`: trains what a job spec describes.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "cli/commands.h"
#include "cli/engine_library.h"
#include "cli/run_options.h"
#include "core/job/load.h"
#include "core/job/places.h"

namespace dtorch::cli {
namespace {

struct RunArguments {
  std::string spec;
  std::vector<std::string> overrides;
  RunOptions options;
  OutputFlags output;
  int nnodes = 0;  ///< 0: as many as the spec names hosts, else 1
};

/** env://: another launcher started this process as one rank. */
int run_as_rank(const RunArguments& arguments) {
  const RunOptions& options = arguments.options;
  if (arguments.nnodes != 0 || options.node_rank != 0 || !options.log_dir.empty())
    throw Error(ErrorKind::usage,
                "--nnodes, --node-rank and --log-dir are for ranks that dtorch itself starts, not for env://",
                "give them to the launcher that starts this rank");
  return engine_exit_code(load_engine().run_rank(
      {options.spec_yaml, -1, options.losses_file, options.dry_run, options.places, arguments.output.json}));
}

/** torchrun and its like start a program once a rank; each one would start the whole job. */
void warn_of_another_launcher(const JobSpec& spec, JobObserver& observer) {
  const char* size = std::getenv("WORLD_SIZE");
  if (std::getenv("RANK") == nullptr || size == nullptr || std::string_view(size) == "1") return;
  observer.log(
      -1, "warning",
      fmt::format(
          "RANK and WORLD_SIZE={} are set, as if another launcher had started this process as one rank of "
          "{}, but "
          "init_method is {}: a whole job of its own starts here; to be a rank, set init_method to env://",
          size, size, spec.init_method));
}

int train(RunArguments& arguments) {
  SpecPlaces places;
  const JobSpec spec = load_job(arguments.spec, arguments.overrides, &places);
  RunOptions& options = arguments.options;
  options.places = places.to_text();
  take_spec(options, spec);
  if (spec.init_method.rfind("env://", 0) == 0) return run_as_rank(arguments);
  options.executable = executable_path();
  options.ranks_per_node = ranks_per_node(spec, arguments.nnodes);
  const int nnodes = static_cast<int>(options.ranks_per_node.size());
  if (options.node_rank < 0 || options.node_rank >= nnodes) {
    throw Error(ErrorKind::usage,
                fmt::format("--node-rank {} is not from 0 to {}", options.node_rank, nnodes - 1),
                "give --nnodes, or name the machines in nodes.hosts");
  }
  check_outputs(options);
  RunViewOptions shown = view_options(spec, arguments.output, options.dry_run);
  shown.show_output = options.log_dir.empty();
  RunView view(shown);
  warn_of_another_launcher(spec, view);
  return view.finish(run_job(options, view));
}

}  // namespace

void add_run(CLI::App& app, Chosen& chosen) {
  auto arguments = std::make_shared<RunArguments>();
  RunOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("run", "Trains what a job spec describes");
  command->add_option("JOB", arguments->spec, "The job spec, a YAML file (-: standard input)")->required();
  command->add_option("-s,--set", arguments->overrides, "Overrides a value of the spec: optimizer.lr=0.1")
      ->take_all()
      ->allow_extra_args(false);
  command->add_flag("--dry-run", options.dry_run, "Checks everything, prints the plan and stops");
  command->add_option("--losses", options.losses_file, "Rank R writes its loss at every step to FILE.R");
  command->add_option("--nnodes", arguments->nnodes, "Machines; each runs dtorch run with its --node-rank")
      ->check(CLI::Range(1, 65536));
  command->add_option("--node-rank", options.node_rank, "This machine's number, from 0");
  command->add_option(
      "--log-dir", options.log_dir,
      "What ranks print goes to DIR/rankN.log and is not shown (its end is, should the rank fail)");
  arguments->output.add_to(*command);
  command->callback([arguments, &chosen] { chosen = [arguments] { return train(*arguments); }; });
}

}  // namespace dtorch::cli
