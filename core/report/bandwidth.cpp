#include "core/report/bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <regex>
#include <utility>

#include "core/base/error.h"
#include "core/base/units.h"

namespace dtorch::report {
namespace {

using Points = std::vector<std::pair<double, double>>;  // bytes, microseconds

/** Minimises the sum of ((a + b x - y) / y)^2. */
LinearFit fit_line(const Points& points) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (const auto& [x, y] : points) {
    const double weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }
  const double slope = std::max((w * wxy - wx * wy) / (w * wxx - wx * wx), 0.0);
  LinearFit result;
  result.latency_us = std::max((wy - slope * wx) / w, 0.0);
  result.gb_s = slope > 0 ? 1e-3 / slope : std::numeric_limits<double>::infinity();
  for (const auto& [x, y] : points) {
    result.worst_error = std::max(result.worst_error, std::abs(result.latency_us + slope * x - y) / y);
  }
  return result;
}

const BenchTimes* best_times(const BenchRow& row) {
  if (row.in_place) return &*row.in_place;
  return row.out_of_place ? &*row.out_of_place : nullptr;
}

[[noreturn]] void malformed(const std::string& text, const std::string& what) {
  throw Error(
      ErrorKind::usage, fmt::format("--expect '{}': {}", text, what),
      "write it like 'allreduce@4MiB>=5GB/s' (bus bandwidth) or 'allreduce/shm@4B<=2us' (median time)");
}

double in_unit(const std::string& text, double value, const std::string& unit, bool at_least) {
  static const std::map<std::string, double> rates{{"GB/s", 1}, {"MB/s", 1e-3}};
  static const std::map<std::string, double> times{{"us", 1}, {"µs", 1}, {"ms", 1e3}, {"s", 1e6}};
  const auto& units = at_least ? rates : times;
  const auto found = units.find(unit);
  if (found == units.end()) {
    malformed(text, fmt::format("'{}' is no unit for {}", unit,
                                at_least ? ">= (GB/s or MB/s)" : "<= (us, ms or s)"));
  }
  return value * found->second;
}

}  // namespace

double algorithm_bandwidth(std::int64_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds * 1e-3 : 0;
}

double bus_factor(const std::string& operation, int world_size) {
  const double n = world_size;
  if (operation == "allreduce") return 2 * (n - 1) / n;
  if (operation == "broadcast" || operation == "reduce" || operation == "sendrecv") return 1;
  return (n - 1) / n;
}

std::optional<double> bus_bandwidth(const BenchRow& row, const BenchTimes& times) {
  if (row.bytes == 0) return {};
  return algorithm_bandwidth(row.bytes, times.p50_us) * bus_factor(row.operation, row.world_size);
}

std::vector<LinearFit> fit_rows(const std::vector<BenchRow>& rows) {
  std::vector<std::pair<std::pair<std::string, std::string>, Points>> series;
  for (const BenchRow& row : rows) {
    const BenchTimes* times = best_times(row);
    if (times == nullptr || row.bytes == 0) continue;
    const auto key = std::pair(row.operation, row.backend);
    auto found =
        std::find_if(series.begin(), series.end(), [&](const auto& each) { return each.first == key; });
    if (found == series.end()) found = series.insert(series.end(), {key, {}});
    found->second.emplace_back(static_cast<double>(row.bytes), times->p50_us);
  }
  std::vector<LinearFit> fits;
  for (const auto& [key, points] : series) {
    if (points.size() < 2) continue;
    LinearFit line = fit_line(points);
    line.operation = key.first;
    line.backend = key.second;
    fits.push_back(line);
  }
  return fits;
}

Expectation parse_expectation(const std::string& text) {
  static const std::regex form(
      R"(([a-z]+)(?:/([^@]+))?@([0-9.]+ ?[A-Za-z]*)\s*(>=|<=)\s*([0-9.eE+-]+) ?(\S+))");
  std::smatch match;
  if (!std::regex_match(text, match, form)) malformed(text, "not understood");
  Expectation result;
  result.text = text;
  result.operation = match[1];
  result.backend = match[2];
  const auto& known = bench_operations();
  if (std::find(known.begin(), known.end(), result.operation) == known.end()) {
    malformed(text, fmt::format("no collective is named '{}'", result.operation));
  }
  const auto bytes = parse_binary_size(match[3].str());
  if (!bytes) malformed(text, fmt::format("'{}' is no size", match[3].str()));
  result.bytes = *bytes;
  result.at_least = match[4] == ">=";
  double value = 0;
  try {
    value = std::stod(match[5]);
  } catch (const std::exception&) {
    malformed(text, fmt::format("'{}' is no number", match[5].str()));
  }
  result.value = in_unit(text, value, match[6], result.at_least);
  return result;
}

bool concerns(const Expectation& expectation, const BenchRow& row) {
  // A row's size is rounded down to whole elements for each rank.
  const std::int64_t cut = expectation.bytes - row.bytes;
  return expectation.operation == row.operation && cut >= 0 && cut < 8LL * row.world_size &&
         (expectation.backend.empty() || expectation.backend == row.backend);
}

std::string unmet(const Expectation& expectation, const BenchRow& row) {
  const BenchTimes* times = best_times(row);
  if (times == nullptr)
    return fmt::format("{}: {} was not timed: {}", expectation.text, row.backend, row.note);
  if (!expectation.at_least) {
    if (times->p50_us <= expectation.value) return {};
    return fmt::format("{}: {} took {:.2f} us", expectation.text, row.backend, times->p50_us);
  }
  const double reached = bus_bandwidth(row, *times).value_or(0);
  if (reached >= expectation.value) return {};
  return fmt::format("{}: {} reached {:.3f} GB/s", expectation.text, row.backend, reached);
}

}  // namespace dtorch::report
