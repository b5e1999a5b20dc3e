#include "cli/failure_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/exit_codes.h"
#include "core/base/host.h"
#include "core/base/placed.h"
#include "core/report/text.h"

namespace dtorch {
namespace {

std::string in_colour(const std::string& text, const char* code, bool colour) {
  return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{} ({})", name, ::strsignal(signal))
                         : fmt::format("signal {}", signal);
}

/** "rank 1 on node-a, step 120, in all_reduce #42 ..., ended by SIGKILL (Killed)"; empty when nothing is
 * known. */
std::string place_text(const Failure& failure, bool trains) {
  std::vector<std::string> parts;
  if (failure.rank >= 0) {
    parts.push_back(failure.host.empty() ? fmt::format("rank {}", failure.rank)
                                         : fmt::format("rank {} on {}", failure.rank, failure.host));
  } else if (!failure.host.empty()) {
    parts.push_back(fmt::format("on {}", failure.host));
  }
  if (failure.step >= 0) {
    parts.push_back(fmt::format("at step {}", failure.step));
  } else if (failure.rank >= 0 && trains) {
    parts.emplace_back("before the first step");
  }
  if (!failure.collective.empty()) parts.push_back(fmt::format("in {}", failure.collective));
  if (failure.signal != 0) parts.push_back(fmt::format("ended by {}", signal_text(failure.signal)));
  if (failure.signal == 0 && failure.exit_code >= 0)
    parts.push_back(fmt::format("exit code {}", failure.exit_code));
  return fmt::format("{}", fmt::join(parts, ", "));
}

/** Lines of TEXT, fit to be printed, each after INDENT. */
std::string indented(const std::string& text, std::string_view indent) {
  std::string result;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    result +=
        fmt::format("{}{}\n", start == 0 ? "" : indent, report::printable(text.substr(start, end - start)));
    start = end + 1;
  }
  return result;
}

}  // namespace

std::string failure_text(const Failure& failure, const std::vector<std::string>& tail, bool colour,
                         bool trains) {
  // "configs/x.yaml:4:1: error: ..." needs no second "error:".
  const bool placed = names_its_place(failure.kind, failure.message);
  std::string text = placed ? "" : in_colour("error: ", "1;31", colour);
  text += indented(failure.message, placed ? "" : "  ");
  // A spec's mistake stands where it is said to stand; only another machine's pre-flight needs to be named.
  const bool here = placed && failure.rank < 0 && failure.host == host_name();
  if (const std::string place = here ? "" : place_text(failure, trains); !place.empty())
    text += fmt::format("  {}\n", report::printable(place));
  if (!failure.missing_ranks.empty())
    text += fmt::format("  did not come: rank {}\n", fmt::join(failure.missing_ranks, ", "));
  if (!tail.empty()) {
    text += failure.rank >= 0 ? fmt::format("  last lines of rank {}:\n", failure.rank)
                              : std::string("  last lines:\n");
    for (const std::string& line : tail) text += fmt::format("    | {}\n", report::printable(line));
  }
  if (!failure.help.empty()) text += in_colour("help: ", "1;32", colour) + indented(failure.help, "  ");
  return text;
}

nlohmann::json error_event(const Failure& failure, const std::vector<std::string>& tail) {
  nlohmann::json event = failure;
  event.erase("type");
  event.erase("consequence");
  event["event"] = "error";
  event["program_exit_code"] = event["exit_code"];
  event["exit_code"] = exit_code(failure);
  event["tail"] = tail;
  return event;
}

}  // namespace dtorch
