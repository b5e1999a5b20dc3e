// `dtorch launch`: any program once a rank, with torchrun's environment.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/failure_text.h"
#include "cli/numbers.h"
#include "cli/outlet.h"
#include "cli/terminal.h"
#include "core/base/endpoint.h"
#include "core/base/nearest.h"
#include "core/launch/launcher.h"
#include "core/launch/spawn.h"
#include "core/report/text.h"

namespace dtorch::cli {
namespace {

struct LaunchArguments {
  LaunchOptions options;
  std::string endpoint;
  bool standalone = false;
  bool tee = false;
  bool no_python = false;
  std::vector<int> show;  ///< local ranks whose output is shown; empty: all
  double grace = 5;
  double timeout = 300;
};

/** Shows what programs print, a prefix before each line, and the launcher's own messages. */
class ProgramObserver : public JobObserver {
 public:
  explicit ProgramObserver(const LaunchArguments& arguments) : arguments_(arguments) {}
  void plan(const nlohmann::json& plan) override { first_rank_ = plan.at("first_rank").get<int>(); }
  void log(int rank, const std::string& level, const std::string& text) override {
    const std::string who = rank < 0 ? "dtorch" : fmt::format("[rank {}]", rank);
    err_.write(
        fmt::format("{}: {}{}\n", who, level == "warning" ? "warning: " : "", report::printable(text)));
  }
  void output(int rank, bool is_stderr, const std::string& line) override {
    if (!arguments_.options.log_dir.empty() && !arguments_.tee) return;
    const auto& show = arguments_.show;
    if (!show.empty() && std::find(show.begin(), show.end(), rank - first_rank_) == show.end()) return;
    (is_stderr ? err_ : out_).write(fmt::format("[rank {}] {}\n", rank, line));
  }
  bool congested() const override { return out_.congested() || err_.congested(); }
  /** Waits until all is written; what could not be is a failure where there is no other. */
  void finish(JobOutcome& outcome) {
    for (Outlet* outlet : {&out_, &err_}) {
      outlet->flush();
      const auto failure = outlet->failure();
      if (!failure || outcome.failure) continue;
      outcome.failure = to_failure(*failure);
      outcome.program_code = exit_code(failure->kind());
    }
  }

 private:
  const LaunchArguments& arguments_;
  int first_rank_ = 0;
  Outlet out_{STDOUT_FILENO, "standard output"};
  Outlet err_{STDERR_FILENO, "standard error"};
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/** Like torchrun: a script is run by Python, unbuffered, so that its lines come when they are printed. */
void add_python(LaunchArguments& arguments) {
  auto& program = arguments.options.program;
  if (arguments.no_python || !ends_with(program.front(), ".py") || find_program(program.front())) return;
  program.insert(program.begin(), {"python3", "-u"});
}

void check(LaunchArguments& arguments) {
  LaunchOptions& options = arguments.options;
  if (options.program.empty()) {
    throw Error(ErrorKind::usage, "no program given", "write it last: dtorch launch -n 2 -- PROGRAM ARGS");
  }
  if (!arguments.endpoint.empty()) {
    const Endpoint endpoint = parse_endpoint(arguments.endpoint);
    options.master_address = endpoint.host;
    options.master_port = endpoint.port;
  }
  if (arguments.standalone) {
    if (options.nnodes != 1)
      throw Error(ErrorKind::usage, "--standalone is for one node", "leave out --nnodes");
    options.master_address = "127.0.0.1";
    options.master_port = 0;
  }
  if (options.node_rank < 0 || options.node_rank >= options.nnodes) {
    throw Error(ErrorKind::usage,
                fmt::format("--node-rank {} is not from 0 to {}", options.node_rank, options.nnodes - 1));
  }
  if (options.nnodes > 1 && options.master_port == 0) {
    throw Error(ErrorKind::usage, "several nodes need a port that all of them know",
                "add --master-port or --rdzv-endpoint HOST:PORT");
  }
  if (arguments.tee && options.log_dir.empty()) {
    throw Error(ErrorKind::usage, "--tee needs --log-dir", "without --log-dir the output is shown anyway");
  }
  for (const int local : arguments.show) {
    if (local >= 0 && local < options.local_ranks) continue;
    throw Error(ErrorKind::usage,
                fmt::format("--local-ranks-filter {} is not from 0 to {}", local, options.local_ranks - 1),
                "it counts the ranks of this machine: see -n");
  }
  options.grace = to_milliseconds(arguments.grace);
  options.rendezvous_timeout = to_milliseconds(arguments.timeout);
  add_python(arguments);
}

/** Words before the program that no option is: `--nproc_per_node 2` must not be looked for as a program. */
void refuse_unknown_option(const CLI::App& command, const std::vector<std::string>& program) {
  if (program.empty() || !program.front().starts_with('-')) return;
  const std::string given = program.front().substr(0, program.front().find('='));
  std::vector<std::string> names;
  for (const auto* option : command.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  const std::string_view near = nearest(given, candidates);
  throw Error(ErrorKind::usage, fmt::format("unknown option '{}'", given),
              near.empty() ? "see dtorch launch --help; the program stands last: -n 2 -- PROGRAM ARGS"
                           : fmt::format("did you mean '{}'?", near));
}

int run_launch(LaunchArguments& arguments) {
  check(arguments);
  arguments.options.executable = executable_path();
  ProgramObserver observer(arguments);
  JobOutcome outcome = launch_program(arguments.options, observer);
  observer.finish(outcome);
  if (!outcome.failure) return 0;
  // What was shown line by line is not repeated.
  const bool shown = arguments.options.log_dir.empty() || arguments.tee;
  const bool colour = decide_output({}, surroundings()).stderr_colour;
  write_all(STDERR_FILENO,
            failure_text(*outcome.failure, shown ? std::vector<std::string>() : outcome.tail, colour,
                         /*trains=*/false));
  return outcome.program_code != 0 ? outcome.program_code : exit_code(*outcome.failure);
}

}  // namespace

void add_launch(CLI::App& app, Chosen& chosen) {
  auto arguments = std::make_shared<LaunchArguments>();
  LaunchOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "launch", "Starts any program once a rank, with torchrun's environment: dtorch launch -n N -- PROGRAM");
  command->add_option("-n,--nproc-per-node", options.local_ranks, "Ranks on this machine")
      ->check(CLI::Range(1, 4096));
  command->add_option("--nnodes", options.nnodes, "Machines; each runs dtorch launch with its --node-rank")
      ->check(CLI::Range(1, 65536));
  command->add_option("--node-rank", options.node_rank, "This machine's number, from 0");
  command->add_option("--master-addr", options.master_address, "Node 0's address (default 127.0.0.1)");
  command->add_option("--master-port", options.master_port, "Node 0's port; 0: any free one")
      ->check(CLI::Range(0, 65535));
  command->add_option("--rdzv-endpoint", arguments->endpoint,
                      "HOST:PORT, for --master-addr and --master-port");
  command->add_option("--rdzv-id", options.run_id, "TORCHELASTIC_RUN_ID (default: made up)");
  command->add_flag("--standalone", arguments->standalone, "One machine, any free port (the default)");
  command
      ->add_option("--max-restarts", options.max_restarts,
                   "How often all ranks are started again after a failure, 0.1 s later, then 0.2 s, ... 10 s")
      ->check(CLI::Range(0, 1'000'000));
  command->add_option("--log-dir", options.log_dir, "Output goes to DIR/rankN.log instead");
  command->add_flag("--tee", arguments->tee, "With --log-dir: show the output too");
  command
      ->add_option("--local-ranks-filter", arguments->show, "Show the output of these local ranks only: 0,2")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_flag("--bind-cores", options.bind_cores, "Pin each rank to its share of the cores");
  command->add_flag("--no-python", arguments->no_python, "Never run a .py file with python3");
  command
      ->add_option("--grace", arguments->grace, "Seconds from Ctrl-C until programs are killed (default 5)")
      ->check(seconds_between(0, 86'400));
  command->add_option("--timeout", arguments->timeout, "Seconds to wait for the other machines (default 300)")
      ->check(seconds_between(0.1, 1e6));
  command->prefix_command();
  command->callback([arguments, command, &chosen] {
    arguments->options.program = command->remaining();
    chosen = [arguments, command] {
      refuse_unknown_option(*command, arguments->options.program);
      return run_launch(*arguments);
    };
  });
}

}  // namespace dtorch::cli
