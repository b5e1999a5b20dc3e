#include "core/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

namespace dtorch {
namespace {

LogLevel level_from_environment() {
  const char* value = std::getenv("DTORCH_LOG");
  if (value == nullptr) return LogLevel::info;
  const std::string_view text(value);
  if (text == "debug") return LogLevel::debug;
  if (text == "warning") return LogLevel::warning;
  return LogLevel::info;
}

struct Logger {
  std::mutex mutex;
  LogSink sink;
  std::atomic<LogLevel> level{level_from_environment()};
};

Logger& logger() {
  static Logger instance;
  return instance;
}

void write_to_stderr(LogLevel level, std::string_view text) {
  std::string line = "dtorch: ";
  if (level == LogLevel::warning) line += "warning: ";
  line.append(text).push_back('\n');
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(logger().mutex);
  logger().sink = std::move(sink);
}

void set_log_level(LogLevel level) { logger().level = level; }

bool log_enabled(LogLevel level) { return level >= logger().level.load(); }

void log_line(LogLevel level, std::string_view text) {
  if (!log_enabled(level)) return;
  const std::lock_guard lock(logger().mutex);
  if (logger().sink) {
    logger().sink(level, text);
  } else {
    write_to_stderr(level, text);
  }
}

}  // namespace dtorch
