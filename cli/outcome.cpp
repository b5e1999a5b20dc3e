#include "cli/outcome.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/exit_codes.h"

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

}  // namespace dtorch::cli
