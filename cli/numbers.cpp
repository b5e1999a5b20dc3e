#include "cli/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string>

namespace dtorch::cli {

CLI::Validator seconds_between(double least, double most) {
  const auto check = [least, most](std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
    if (number && value >= least && value <= most) return {};
    return fmt::format("'{}' is not a number of seconds from {} to {}", text, least, most);
  };
  return CLI::Validator(check, "SECONDS");
}

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

}  // namespace dtorch::cli
