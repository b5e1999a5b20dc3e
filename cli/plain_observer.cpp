#include "cli/plain_observer.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

namespace dtorch::cli {

void PlainObserver::event(const char* name, nlohmann::json fields) const {
  if (json_) {
    fields["event"] = name;
    std::cout << fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  } else if (!quiet_) {
    std::cout << name << ' ' << fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }
}

void PlainObserver::plan(const nlohmann::json& plan) { event("plan", plan); }
void PlainObserver::phase(int, const std::string&) {}
void PlainObserver::step(const StepRecord& record) { event("step", record); }
void PlainObserver::epoch(const EpochRecord& record) { event("epoch", record); }
void PlainObserver::eval(const EvalRecord& record) { event("eval", record); }
void PlainObserver::result(const ResultRecord& record) { event("result", record); }

void PlainObserver::log(int rank, const std::string& level, const std::string& text) {
  if (quiet_ && level != "warning") return;
  const std::string who = rank < 0 ? "dtorch" : fmt::format("[rank {}]", rank);
  std::fputs(fmt::format("{}: {}{}\n", who, level == "warning" ? "warning: " : "", text).c_str(), stderr);
}

void PlainObserver::output(int rank, bool, const std::string& line) {
  std::fputs(fmt::format("[rank {}] {}\n", rank, line).c_str(), stderr);
}

}  // namespace dtorch::cli
