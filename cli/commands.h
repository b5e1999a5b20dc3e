// The commands of the command line, one file each. A command adds its options to the parser; once the arguments are parsed,
// the chosen one's function runs and returns the exit code.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace dtorch::cli {

/** What the parser leaves behind: the chosen command, ready to run. It may throw Error and SpecError. */
using Chosen = std::function<int()>;

void add_run(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);
void add_launch(CLI::App& app, Chosen& chosen);
void add_join(CLI::App& app, Chosen& chosen);
/** Hidden: one rank, started by the launcher. */
void add_rank(CLI::App& app, Chosen& chosen);
/** Hidden: the launcher's helper, see core/launch/agent.h. */
void add_agent(CLI::App& app, Chosen& chosen);

/** The running executable's path, to start ranks from. */
std::string executable_path();

}  // namespace dtorch::cli
