#include "core/comm/stall_dump.h"

#include <nlohmann/json.hpp>

#include "core/comm/stack.h"

namespace dtorch {
namespace {

double to_ms(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace

nlohmann::json ring_json(const ProcessGroup& group) {
  auto ring = nlohmann::json::array();
  const auto now = Clock::now();
  for (const auto& record : group.recent()) {
    nlohmann::json entry{
        {"group", group.name()}, {"sequence", record.sequence},           {"operation", record.operation},
        {"bytes", record.bytes}, {"age_ms", to_ms(now - record.started)}, {"took_ms", nullptr}};
    if (record.finished) entry["took_ms"] = to_ms(*record.finished - record.started);
    ring.push_back(std::move(entry));
  }
  return ring;
}

nlohmann::json stall_dump(const ProcessGroup& group, pid_t thread) {
  return {
      {"type", "ring"}, {"rank", group.rank()}, {"ring", ring_json(group)}, {"stack", capture_stack(thread)}};
}

}  // namespace dtorch
