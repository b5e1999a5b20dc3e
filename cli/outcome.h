// How a job's end is told: on stderr for people, as an event for programs, as the exit code.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "core/job/spec.h"
#include "core/launch/launcher.h"

namespace dtorch::cli {

/** Writes the first cause, where it happened, the rank's last lines and the help to stderr. */
void print_failure(const JobOutcome& outcome);

/** The "error" event of --json. */
nlohmann::json error_event(const JobOutcome& outcome);

/** 128 + signal for a job that was interrupted, else by the table. */
int exit_code(const Failure& failure);

/** What run and join do last: tells of a failure and gives the exit code. */
int finish_run(const JobOutcome& outcome, bool json);

/** What the launcher must know of a spec: its canonical text and the sections about nodes and timeouts. */
void take_spec(RunOptions& options, const JobSpec& spec);

/** `error: ...` and `help: ...` on stderr. */
void print_error(const std::string& message, const std::string& help);

}  // namespace dtorch::cli
