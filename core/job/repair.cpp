#include "core/job/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/job/scalar.h"
#include "core/job/source.h"

namespace dtorch::job {
namespace {

/** The unit that people mean by another word for it; empty for a word that means none. */
std::string_view meant_unit(std::string_view word, bool time) {
  struct Meaning {
    std::string_view word, unit;
  };
  static constexpr std::array kTimes{
      Meaning{"s", "s"},       Meaning{"sec", "s"},    Meaning{"secs", "s"},     Meaning{"second", "s"},
      Meaning{"seconds", "s"}, Meaning{"ms", "ms"},    Meaning{"msec", "ms"},    Meaning{"m", "min"},
      Meaning{"min", "min"},   Meaning{"mins", "min"}, Meaning{"minute", "min"}, Meaning{"minutes", "min"},
      Meaning{"h", "h"},       Meaning{"hr", "h"},     Meaning{"hrs", "h"},      Meaning{"hour", "h"},
      Meaning{"hours", "h"}};
  static constexpr std::array kSizes{Meaning{"b", "B"},   Meaning{"byte", "B"}, Meaning{"bytes", "B"},
                                     Meaning{"k", "KiB"}, Meaning{"kb", "kB"},  Meaning{"kib", "KiB"},
                                     Meaning{"m", "MiB"}, Meaning{"mb", "MB"},  Meaning{"mib", "MiB"},
                                     Meaning{"g", "GiB"}, Meaning{"gb", "GB"},  Meaning{"gib", "GiB"},
                                     Meaning{"t", "TiB"}, Meaning{"tb", "TB"},  Meaning{"tib", "TiB"}};
  const auto find = [&](const auto& table) -> std::string_view {
    const auto found =
        std::find_if(table.begin(), table.end(), [&](const Meaning& m) { return m.word == word; });
    return found == table.end() ? std::string_view() : found->unit;
  };
  return time ? find(kTimes) : find(kSizes);
}

}  // namespace

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string unit_repair(std::string_view text, bool time) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  if (!is_number_text(number)) return {};
  if (digits == text.size()) return fmt::format("add a unit: {}{}", number, time ? "s" : "MiB");
  const std::size_t word = std::min(text.find_first_not_of(' ', digits), text.size());
  const std::string_view unit = meant_unit(lower(text.substr(word)), time);
  return unit.empty() ? std::string() : fmt::format("write {}{}", number, unit);
}

std::string list_repair(std::string_view text) {
  std::string items;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = text.find_first_not_of(", ", i);
    if (begin == std::string_view::npos) break;
    i = std::min(text.find_first_of(", ", begin), text.size());
    items += fmt::format("{}{}", items.empty() ? "" : ", ", text.substr(begin, i - begin));
  }
  return items.empty() || text.size() > 60 ? std::string() : fmt::format("write [{}]", shown(items));
}

std::string separator_repair(std::string_view key) {
  const std::size_t end = key.find_first_of(" :=");
  if (end == std::string_view::npos || end == 0) return {};
  const std::size_t value = key.find_first_not_of(" :=", end);
  if (value == std::string_view::npos) return {};
  return fmt::format("write '{}: {}'{}", shown(key.substr(0, end)), shown(key.substr(value)),
                     key[end] == ':' ? ": a space follows the ':'" : "");
}

}  // namespace dtorch::job
