#include "core/launch/explain.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/base/json_text.h"

namespace dtorch {
namespace {

constexpr std::size_t kMaxErrorFile = std::size_t{1} << 20;

std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

}  // namespace

std::string exit_message(int rank, pid_t pid, const ExitStatus& status) {
  const std::string who = fmt::format("rank {} (pid {})", rank, pid);
  if (status.signal != 0) return fmt::format("{} was killed by {}", who, signal_name(status.signal));
  return fmt::format("{} exited with code {}", who, status.code);
}

Failure interrupted_failure(int signal, const std::string& host, const std::string& how) {
  Failure failure;
  failure.kind = ErrorKind::interrupted;
  failure.host = host;
  failure.signal = signal;
  failure.message = fmt::format("stopped by {}: {}", signal_name(signal), how);
  return failure;
}

std::string read_error_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (path.empty() || !file) return {};
  std::string text(kMaxErrorFile, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("message")) return {};
  const auto& message = json["message"];
  // torch's record() nests: {"message": {"message": ..., "extraInfo": ...}}
  if (message.is_object() && message.contains("message")) return text_of(message["message"]);
  return text_of(message);
}

std::vector<std::string> dump_lines(const nlohmann::json& message) {
  std::vector<std::string> lines;
  for (const char* part : {"ring", "stack"}) {
    const auto found = message.find(part);
    if (found == message.end() || !found->is_array()) continue;
    for (const auto& entry : *found) lines.push_back(fmt::format("{}: {}", part, text_of(entry)));
  }
  return lines;
}

char process_state(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '?' : text[name_end + 2];
}

bool is_stopped(pid_t pid) {
  const char state = process_state(pid);
  return state == 'T' || state == 't';
}

std::string why_it_stays(pid_t pid) {
  const char state = process_state(pid);
  if (state == 'D') return "it waits for a disk or another device (state D)";
  if (state == 'Z') return "a debugger or tracer holds it (state Z)";
  return fmt::format("it is in state {}", state);
}

}  // namespace dtorch
