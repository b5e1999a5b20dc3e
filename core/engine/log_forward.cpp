#include "core/engine/log_forward.h"

#include <nlohmann/json.hpp>

#include "core/base/log.h"

namespace dtorch::engine {
namespace {

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: break;
  }
  return "warning";
}

}  // namespace

LogForward::LogForward(Channel& channel) {
  set_log_sink([&channel](LogLevel level, std::string_view text) {
    channel.send({{"type", "log"}, {"level", level_name(level)}, {"text", text}});
  });
}

LogForward::~LogForward() { set_log_sink(nullptr); }

}  // namespace dtorch::engine
