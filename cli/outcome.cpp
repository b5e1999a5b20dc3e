#include "cli/outcome.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/exit_codes.h"
#include "core/job/load.h"

namespace dtorch::cli {
namespace {

std::string place_of(const Failure& failure) {
  std::string place;
  if (failure.step >= 0) place += fmt::format("at step {}", failure.step);
  if (!failure.collective.empty()) place += fmt::format("{}in {}", place.empty() ? "" : ", ", failure.collective);
  return place;
}

}  // namespace

void print_error(const std::string& message, const std::string& help) {
  std::string text = fmt::format("error: {}\n", message);
  if (!help.empty()) text += fmt::format("help: {}\n", help);
  std::fputs(text.c_str(), stderr);
}

void print_failure(const JobOutcome& outcome) {
  const Failure& failure = *outcome.failure;
  std::string text = fmt::format("error: {}\n", failure.message);
  const std::string place = place_of(failure);
  if (!place.empty()) text += fmt::format("  {}\n", place);
  if (!outcome.tail.empty()) {
    text += fmt::format("  last output of rank {}:\n", failure.rank);
    for (const auto& line : outcome.tail) text += fmt::format("  | {}\n", line);
  }
  if (!failure.help.empty()) text += fmt::format("help: {}\n", failure.help);
  std::fputs(text.c_str(), stderr);
}

nlohmann::json error_event(const JobOutcome& outcome) {
  nlohmann::json event = *outcome.failure;
  event["event"] = "error";
  event["tail"] = outcome.tail;
  event["exit_code"] = exit_code(*outcome.failure);
  return event;
}

int exit_code(const Failure& failure) {
  if (failure.kind == ErrorKind::interrupted && failure.signal != 0) return 128 + failure.signal;
  return dtorch::exit_code(failure.kind);
}

int finish_run(const JobOutcome& outcome, bool json) {
  if (!outcome.failure) return 0;
  if (json) std::cout << error_event(outcome).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  print_failure(outcome);
  return exit_code(*outcome.failure);
}

void take_spec(RunOptions& options, const JobSpec& spec) {
  options.spec_yaml = to_yaml(spec);
  options.name = spec.name;
  options.init_method = spec.init_method;
  options.bind_cores = spec.nodes.bind_cores;
  options.threads = spec.nodes.threads;
  options.rendezvous_timeout = spec.timeouts.rendezvous;
  options.init_timeout = spec.timeouts.init;
  options.shutdown_timeout = spec.timeouts.shutdown;
}

}  // namespace dtorch::cli
