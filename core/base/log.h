// Progress and warnings for people, on stderr. Not for results (stdout is cli's) and not for errors (those are thrown).
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace dtorch {

enum class LogLevel { debug, info, warning };

/** Where log lines go: called with the level and one line without a newline, from any thread, one call at a time. */
using LogSink = std::function<void(LogLevel, std::string_view)>;

/** Replaces the sink (default: `dtorch: warning: text` on stderr). A rank sends its lines to the launcher. */
void set_log_sink(LogSink sink);
/** Lines below this level are dropped; initially DTORCH_LOG=debug|info|warning, else info. */
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

inline void log_debug(std::string_view text) { log_line(LogLevel::debug, text); }
inline void log_info(std::string_view text) { log_line(LogLevel::info, text); }
inline void log_warning(std::string_view text) { log_line(LogLevel::warning, text); }

}  // namespace dtorch
