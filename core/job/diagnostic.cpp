#include <fmt/format.h>

#include <algorithm>

#include "core/job/load.h"
#include "core/job/source.h"

namespace dtorch {
namespace {

constexpr std::size_t kWidth = 120;  // of a shown source line, in characters

std::string joined(const std::vector<std::string>& parts, std::size_t from, std::size_t to) {
  std::string result;
  for (std::size_t i = from; i < std::min(to, parts.size()); ++i) result += parts[i];
  return result;
}

std::string printable(std::string_view text) {
  const auto characters = job::printable_characters(text);
  return joined(characters, 0, characters.size());
}

/** The source line and the caret below it, cut to a window around the place. */
std::string excerpt(const Diagnostic& diagnostic) {
  const auto characters = job::printable_characters(diagnostic.source_line);
  const std::size_t column = static_cast<std::size_t>(std::max(diagnostic.column, 1)) - 1;
  const std::size_t start = column > kWidth - 20 ? column - kWidth / 2 : 0;
  std::string indent;
  // Tabs stay tabs, so that the caret stands below its character whatever a tab is worth.
  for (std::size_t i = start; i < column; ++i)
    indent += i < characters.size() && characters[i] == "\t" ? '\t' : ' ';
  const std::size_t room = start + kWidth - std::min(column, start + kWidth - 1);
  const std::size_t length = std::min(static_cast<std::size_t>(std::max(diagnostic.length, 1)), room);
  const std::string_view more_left = start > 0 ? "…" : "";
  const std::string_view more_right = characters.size() > start + kWidth ? "…" : "";
  return fmt::format("{:>5} | {}{}{}\n      | {}{}^{}\n", diagnostic.line, more_left,
                     joined(characters, start, start + kWidth), more_right, start > 0 ? " " : "", indent,
                     std::string(length - 1, '~'));
}

std::string format_all(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (!text.empty()) text += '\n';
    text += format(diagnostic);
  }
  return text;
}

}  // namespace

std::string format(const Diagnostic& diagnostic) {
  std::string text = printable(diagnostic.file);
  if (diagnostic.line > 0) text += fmt::format(":{}:{}", diagnostic.line, diagnostic.column);
  text += fmt::format(": error: {}\n", diagnostic.message);
  if (!diagnostic.source_line.empty()) text += excerpt(diagnostic);
  if (!diagnostic.help.empty()) text += fmt::format("help: {}\n", diagnostic.help);
  text.pop_back();
  return text;
}

SpecError::SpecError(std::vector<Diagnostic> diagnostics)
    : Error(ErrorKind::spec, format_all(diagnostics)), diagnostics_(std::move(diagnostics)) {}

}  // namespace dtorch
