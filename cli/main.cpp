// The command line's entry, and the only place that exits.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/failure_text.h"
#include "cli/outlet.h"
#include "cli/terminal.h"
#include "core/base/json_text.h"
#include "core/base/nearest.h"

namespace dtorch::cli {
namespace {

/** The names that could have stood where the unknown word stands: options with dashes, commands without. */
std::vector<std::string> known_names(const CLI::App& app, bool options) {
  std::vector<std::string> names;
  if (options) {
    for (const CLI::Option* option : app.get_options()) {
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    }
  } else {
    for (const CLI::App* command :
         app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
      names.push_back(command->get_name());
    }
  }
  return names;
}

/** "did you mean 'run'?" for the first argument that the command does not know; empty when nothing is near. */
std::string suggestion(const CLI::App& app) {
  const auto used = app.get_subcommands();
  const CLI::App& command = used.empty() ? app : *used.front();
  std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return {};
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  const bool value = word.size() < unknown.front().size() && word.rfind('-', 0) != 0;
  if (value && command.get_name() == "run") return "to set a value of the spec write -s " + unknown.front();
  const auto names = known_names(command, word.rfind('-', 0) == 0);
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  const std::string_view nearest = dtorch::nearest(word, candidates);
  return nearest.empty() ? std::string() : "did you mean '" + std::string(nearest) + "'?";
}

/** How errors are to be said, known even where the arguments cannot be parsed. */
OutputChoices choices_of(int argc, char** argv) {
  OutputChoices choices;
  // What follows launch's program is the program's.
  if (argc < 2 || std::string_view(argv[1]) == "launch") return choices;
  for (int i = 2; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view argument(argv[i]);
    constexpr std::string_view kColor = "--color";
    if (argument == "--json") choices.json = true;
    if (argument.substr(0, kColor.size()) != kColor) continue;
    const bool joined = argument.size() > kColor.size() && argument[kColor.size()] == '=';
    const std::string_view value = joined         ? argument.substr(kColor.size() + 1)
                                   : i + 1 < argc ? argv[i + 1]
                                                  : "";
    choices.color = parse_color(value).value_or(choices.color);
  }
  return choices;
}

int report(const Error& error, const OutputChoices& choices) {
  const Failure failure = to_failure(error);
  if (choices.json) write_all(STDOUT_FILENO, json_text(error_event(failure, {})) + "\n");
  const bool colour = decide_output(choices, surroundings()).stderr_colour;
  write_all(STDERR_FILENO, failure_text(failure, {}, colour));
  return exit_code(error.kind());
}

int out_of_memory(const OutputChoices& choices) {
  return report(Error(ErrorKind::os_resource, "out of memory", "free some, or raise the limit (ulimit -v)"),
                choices);
}

/** --help, --version. */
int answer(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream out;
  const int code = app.exit(error, out, out);
  if (write_all(STDOUT_FILENO, out.str()) || errno == EPIPE) return code;
  throw Error(ErrorKind::cannot_write, errno_text("cannot write to standard output", errno));
}

Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto used = app.get_subcommands();
  const std::string name = used.empty() ? "dtorch" : "dtorch " + used.front()->get_name();
  std::string message = error.what();
  const auto unknown = app.remaining(true);
  if (used.empty() && unknown.empty()) message = "no command is given";
  // Without a command the parser complains of that, not of the word that should have been one.
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || used.empty();
  if (extras && !unknown.empty()) {
    const bool option = unknown.front().rfind('-', 0) == 0;
    message = std::string("unknown ") +
              (option         ? "option"
               : used.empty() ? "command"
                              : "argument") +
              " '" + unknown.front() + "'";
  }
  std::string help = suggestion(app);
  if (help.empty() && used.empty())
    help = fmt::format("commands: {}; see dtorch --help", fmt::join(known_names(app, false), ", "));
  if (help.empty()) help = "see " + name + " --help";
  return {ErrorKind::usage, message, help};
}

/** The arguments, last first, as the parser wants them. What follows launch's program is the program's in any case. */
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> result(argv + 1, argv + argc);
  const auto dashes = std::find(result.begin(), result.end(), "--");
  // The parser would look for a command of ours behind it.
  if (!result.empty() && result.front() == "launch" && dashes != result.end()) result.erase(dashes);
  std::reverse(result.begin(), result.end());
  return result;
}

int run(int argc, char** argv) {
  CLI::App app{"Trains neural networks data-parallel from YAML job specs", "dtorch"};
  app.set_version_flag("--version", "dtorch " DTORCH_VERSION);
  app.require_subcommand(1);
  Chosen chosen;
  for (const auto add : {add_run, add_launch, add_join, add_bench, add_rank, add_agent}) add(app, chosen);
  try {
    app.parse(arguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return answer(app, error);
    throw usage_error(app, error);
  }
  std::error_code gone;
  const std::string command = app.get_subcommands().front()->get_name();
  const bool trains = command == "run" || command == "join" || command == "bench";
  if (trains && std::filesystem::current_path(gone).empty())  // libtorch's libraries would die of it
    throw Error(ErrorKind::os_resource, "the current directory is gone: " + gone.message(),
                "change to one that exists");
  return chosen();
}

int run_and_report(int argc, char** argv) {
  const OutputChoices choices = choices_of(argc, argv);
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return report(error, choices);
  } catch (const std::bad_alloc&) {
    return out_of_memory(choices);
  } catch (const std::system_error& error) {  // no thread, no current directory, ...
    return report(Error(ErrorKind::os_resource, error.what()), choices);
  } catch (const std::exception& error) {
    return report(
        Error(ErrorKind::training, std::string("internal error: ") + error.what(), "please report this"),
        choices);
  }
}

/** Where a standard descriptor is closed, the next file or socket that is opened would become it. What is put there refuses to
 * be used as the closed one did: writing to standard output fails. */
void fill_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

}  // namespace
}  // namespace dtorch::cli

int main(int argc, char** argv) {
  dtorch::cli::fill_standard_descriptors();
  // A reader of our output that goes away (| head) is no reason to end a job, and a file that may not grow (ulimit -f) is an
  // error of the write. Children start with the default.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return dtorch::cli::run_and_report(argc, argv);
  } catch (...) {  // not even a report could be made: memory is gone
    constexpr std::string_view kText = "error: out of memory\n";
    dtorch::write_all(STDERR_FILENO, kText);
    return dtorch::exit_code(dtorch::ErrorKind::os_resource);
  }
}
