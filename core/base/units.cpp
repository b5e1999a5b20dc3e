#include "core/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

namespace dtorch {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

// Largest first among those that the canonical texts use.
constexpr std::array<Unit, 4> kDurations{{{"h", 3'600'000}, {"min", 60'000}, {"s", 1'000}, {"ms", 1}}};
constexpr std::array<Unit, 5> kBinarySizes{
    {{"TiB", 1LL << 40}, {"GiB", 1LL << 30}, {"MiB", 1LL << 20}, {"KiB", 1LL << 10}, {"B", 1}}};
constexpr std::array<Unit, 4> kDecimalSizes{
    {{"TB", 1'000'000'000'000}, {"GB", 1'000'000'000}, {"MB", 1'000'000}, {"kB", 1'000}}};
constexpr std::int64_t kLongestDuration = 10LL * 366 * 24 * 3'600'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

const Unit* find_unit(std::span<const Unit> units, std::string_view name) {
  const auto found =
      std::find_if(units.begin(), units.end(), [&](const Unit& unit) { return unit.name == name; });
  return found == units.end() ? nullptr : &*found;
}

/** NUMBER as a multiple of 1/`factor`, exactly: integer arithmetic, nothing when it does not come out whole.
 */
std::optional<std::int64_t> scaled(std::string_view number, std::int64_t factor) {
  const auto dot = number.find('.');
  const std::string_view whole = number.substr(0, dot);
  std::string_view fraction = dot == std::string_view::npos ? std::string_view{} : number.substr(dot + 1);
  if (whole.empty() || (dot != std::string_view::npos && fraction.empty())) return std::nullopt;
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  if (whole.size() > 19 || fraction.size() > 18) return std::nullopt;
  __extension__ using Wide = __int128;
  Wide digits = 0;
  Wide denominator = 1;
  for (const char c : whole) digits = digits * 10 + (c - '0');
  for (const char c : fraction) {
    digits = digits * 10 + (c - '0');
    denominator *= 10;
    if (digits > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  }
  const Wide value = digits * factor;
  if (value % denominator != 0 || value / denominator > std::numeric_limits<std::int64_t>::max())
    return std::nullopt;
  return static_cast<std::int64_t>(value / denominator);
}

std::optional<std::int64_t> parse_with(std::string_view text, std::span<const Unit> units,
                                       std::span<const Unit> more_units) {
  std::size_t end = 0;
  while (end < text.size() && (is_digit(text[end]) || text[end] == '.')) ++end;
  const std::string_view number = text.substr(0, end);
  if (number.empty() || std::count(number.begin(), number.end(), '.') > 1) return std::nullopt;
  const Unit* unit = find_unit(units, text.substr(end));
  if (unit == nullptr) unit = find_unit(more_units, text.substr(end));
  if (unit == nullptr) return std::nullopt;
  return scaled(number, unit->factor);
}

/** In the largest unit of which VALUE is a multiple; zero, a multiple of them all, in ZERO_UNIT. */
std::string text_with(std::int64_t value, std::span<const Unit> units, std::string_view zero_unit) {
  if (value == 0) return fmt::format("0{}", zero_unit);
  const auto unit =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return value % u.factor == 0; });
  return fmt::format("{}{}", value / unit->factor, unit->name);
}

/** Three figures: 1.23, 12.3, 123. */
std::string three_figures(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto value = parse_with(text, kDurations, {});
  if (!value || *value > kLongestDuration) return std::nullopt;
  return std::chrono::milliseconds(*value);
}

std::string duration_text(std::chrono::milliseconds duration) {
  return text_with(duration.count(), kDurations, "s");
}

std::optional<std::int64_t> parse_size(std::string_view text) {
  return parse_with(text, kBinarySizes, kDecimalSizes);
}

std::optional<std::int64_t> parse_binary_size(std::string_view text) {
  constexpr std::array<Unit, 4> kShort{{{"G", 1LL << 30}, {"M", 1LL << 20}, {"K", 1LL << 10}, {"", 1}}};
  const auto size = parse_with(text, kShort, {});
  return size ? size : parse_size(text);
}

std::string size_text(std::int64_t bytes) { return text_with(bytes, kBinarySizes, "B"); }

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds >= 1e9) return "> 30 y";
  const auto whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 86'400) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 1000 * 86'400) return fmt::format("{} d", whole / 86'400);
  return fmt::format("{}d {:02}h", whole / 86'400, whole / 3600 % 24);
}

std::string human_size(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kNames{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", value < 9.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value),
                     kNames[unit]);
}

std::string human_count(double count) {
  if (!std::isfinite(count)) return "-";
  if (count < 0) return fmt::format("-{}", human_count(-count));
  if (count < 999.5) return fmt::format("{:.0f}", count);
  constexpr std::string_view kSuffixes = "kMGTPE";
  std::size_t suffix = 0;
  for (count /= 1000; count >= 999.5 && suffix + 1 < kSuffixes.size(); ++suffix) count /= 1000;
  if (count >= 999.5) return fmt::format("{:.0e}", count);
  return three_figures(count) + kSuffixes[suffix];
}

}  // namespace dtorch
