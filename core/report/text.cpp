#include "core/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/units.h"

namespace dtorch::report {
namespace {

/** The bytes of the character at OFFSET; 0 when it is not UTF-8. Overlong forms and the like are told apart
 * by no terminal. */
std::size_t character_length(std::string_view text, std::size_t offset) {
  const auto first = static_cast<unsigned char>(text[offset]);
  const std::size_t length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (length == 0 || first > 0xF4 || offset + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[offset + i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

/** Characters below U+1100 are one column wide; above, some are: none is wider than two. */
int character_width(std::string_view character) {
  return character.size() >= 3 && static_cast<unsigned char>(character[0]) >= 0xE1 ? 2 : 1;
}

}  // namespace

int text_width(std::string_view text) {
  int width = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = std::max<std::size_t>(character_length(text, i), 1);
    width += character_width(text.substr(i, length));
    i += length;
  }
  return width;
}

std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_length(text, i);
    const auto first = static_cast<unsigned char>(text[i]);
    const bool c1 = length == 2 && first == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (length == 0 || first < 0x20 || first == 0x7F || c1) {
      result += first == '\t' ? ' ' : '?';
    } else {
      result += text.substr(i, length);
    }
    i += std::max<std::size_t>(length, 1);
  }
  return result;
}

std::string fit(std::string_view text, int columns) {
  if (text_width(text) <= columns) return std::string(text);
  std::string result;
  int width = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = std::max<std::size_t>(character_length(text, i), 1);
    width += character_width(text.substr(i, length));
    if (width > columns) break;
    result += text.substr(i, length);
    i += length;
  }
  return result;
}

std::string right(std::string_view text, int columns) {
  const std::string cut = fit(text, columns);
  return std::string(static_cast<std::size_t>(std::max(columns - text_width(cut), 0)), ' ') + cut;
}

std::string left(std::string_view text, int columns) {
  const std::string cut = fit(text, columns);
  return cut + std::string(static_cast<std::size_t>(std::max(columns - text_width(cut), 0)), ' ');
}

std::string bar(double share, int columns) {
  const int room = std::max(columns - 2, 1);
  const double filled = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) * room : 0;
  const auto full = static_cast<std::size_t>(filled);
  return fmt::format("[{}{}]", std::string(full, '#'),
                     std::string(static_cast<std::size_t>(room) - full, '-'));
}

std::string loss_text(double loss) {
  if (std::isnan(loss)) return "nan";
  if (std::isinf(loss)) return loss > 0 ? "inf" : "-inf";
  const double size = std::abs(loss);
  if (size != 0 && (size < 1e-3 || size >= 1e4)) return fmt::format("{:.1e}", loss);
  return size < 10 ? fmt::format("{:.4f}", loss) : fmt::format("{:.2f}", loss);
}

std::string share_text(double share) {
  if (!std::isfinite(share)) return "-";
  return fmt::format("{:.0f}%", std::clamp(share, 0.0, 1.0) * 100);
}

std::string milliseconds_text(double milliseconds) {
  if (!std::isfinite(milliseconds) || milliseconds < 0) return "-";
  if (milliseconds < 9.995) return fmt::format("{:.2f} ms", milliseconds);
  if (milliseconds < 99.95) return fmt::format("{:.1f} ms", milliseconds);
  return human_duration(milliseconds / 1000);
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace dtorch::report
