#include "core/report/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/base/units.h"
#include "core/report/bandwidth.h"

namespace dtorch::report {
namespace {

struct TableColumn {
  int width;
  const char* name;
  const char* unit;
};
constexpr std::array<TableColumn, 19> kTableColumns{{{12, "size", "(B)"},
                                                     {12, "count", "(elements)"},
                                                     {9, "type", ""},
                                                     {7, "redop", ""},
                                                     {6, "root", ""},
                                                     {7, "time", "(us)"},
                                                     {7, "algbw", "(GB/s)"},
                                                     {7, "busbw", "(GB/s)"},
                                                     {6, "#wrong", ""},
                                                     {7, "time", "(us)"},
                                                     {7, "algbw", "(GB/s)"},
                                                     {7, "busbw", "(GB/s)"},
                                                     {6, "#wrong", ""},
                                                     {8, "min", "(us)"},
                                                     {8, "p99", "(us)"},
                                                     {8, "max", "(us)"},
                                                     {7, "skew", "(us)"},
                                                     {4, "slow", "rank"},
                                                     {6, "memcpy", "share"}}};

/** What nccl-tests calls a type. */
std::string nccl_type(const std::string& type) {
  static const std::map<std::string, std::string> names{
      {"float16", "half"}, {"float32", "float"}, {"float64", "double"}};
  const auto found = names.find(type);
  return found == names.end() ? type : found->second;
}

/** Two decimals below ten thousand, as many as fit above. */
std::string time_text(double microseconds) {
  if (microseconds < 9999.995) return fmt::format("{:7.2f}", microseconds);
  return fmt::format("{:7.0f}", microseconds);
}

std::string group_text(const BenchRow& row, const std::optional<BenchTimes>& times) {
  if (!times) return fmt::format(" {:>7} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A");
  const double bus = bus_bandwidth(row, *times).value_or(0);
  return fmt::format(" {} {:7.2f} {:7.2f} {:>6}", time_text(times->p50_us),
                     algorithm_bandwidth(row.bytes, times->p50_us), bus,
                     times->wrong < 0 ? "N/A" : std::to_string(times->wrong));
}

}  // namespace

std::vector<std::string> backends_of(const std::vector<BenchRow>& rows) {
  std::vector<std::string> names;
  for (const BenchRow& row : rows) {
    if (std::find(names.begin(), names.end(), row.backend) == names.end()) names.push_back(row.backend);
  }
  return names;
}

std::string bench_header(const BenchRow& first) {
  std::string names = "#", units = "#";
  for (const auto& column : kTableColumns) {
    const int width = names.size() == 1 ? column.width - 1 : column.width;  // the # is part of the first
    names += fmt::format("{}{:>{}}", names.size() == 1 ? "" : " ", column.name, width);
    units += fmt::format("{}{:>{}}", units.size() == 1 ? "" : " ", column.unit, width);
  }
  return fmt::format("# {} over {}\n#{:51} {:^31} {:^31}\n{}\n{}\n", first.operation, first.backend, "",
                     "out-of-place", "in-place", names, units);
}

std::string bench_line(const BenchRow& row, double memcpy_gb_s) {
  if (!row.out_of_place) return fmt::format("# {} B: {}\n", row.bytes, row.note);
  std::string line =
      fmt::format("{:12} {:12} {:>9} {:>7} {:>6}", row.bytes, row.elements, nccl_type(row.type),
                  row.reduction.empty() ? "none" : row.reduction, row.root);
  line += group_text(row, row.out_of_place) + group_text(row, row.in_place);
  const BenchTimes& times = row.in_place ? *row.in_place : *row.out_of_place;
  const auto bus = bus_bandwidth(row, times);
  const std::string share = bus && memcpy_gb_s > 0 ? fmt::format("{:.0f}%", *bus / memcpy_gb_s * 100) : "N/A";
  line += fmt::format(" {:>8.2f} {:>8.2f} {:>8.2f} {:>7.2f} {:>4} {:>6}\n", times.min_us, times.p99_us,
                      times.max_us, times.skew_us, times.slowest_rank, share);
  if (!row.note.empty()) line += fmt::format("# {} B: {}\n", row.bytes, row.note);
  return line;
}

std::string bench_footer(const std::vector<BenchRow>& rows) {
  std::int64_t wrong = 0;
  double sum = 0;
  int columns = 0;
  for (const BenchRow& row : rows) {
    for (const auto& times : {row.out_of_place, row.in_place}) {
      if (!times) continue;
      wrong += std::max<std::int64_t>(times->wrong, 0);
      sum += bus_bandwidth(row, *times).value_or(0);
      ++columns;
    }
  }
  return fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.6g}\n#\n", wrong,
                     wrong == 0 ? "OK" : "FAILED", columns == 0 ? 0 : sum / columns);
}

std::string bench_comparison(const std::vector<BenchRow>& rows) {
  const auto backends = backends_of(rows);
  if (backends.size() < 2) return {};
  std::string text =
      fmt::format("# {}: median time (us) and bus bandwidth (GB/s), in place where there is one\n#{:>11}",
                  rows.front().operation, "size (B)");
  for (const auto& backend : backends) text += fmt::format(" {:>19}", backend);
  std::map<std::int64_t, std::map<std::string, std::string>> cells;
  for (const BenchRow& row : rows) {
    if (!row.out_of_place) continue;
    const BenchTimes& times = row.in_place ? *row.in_place : *row.out_of_place;
    cells[row.bytes][row.backend] =
        fmt::format("{:>11} {:7.2f}", time_text(times.p50_us), bus_bandwidth(row, times).value_or(0));
  }
  text += "\n";
  for (auto& [bytes, of_backend] : cells) {
    text += fmt::format("{:>12}", bytes);
    for (const auto& backend : backends) {
      const auto& cell = of_backend[backend];
      text += fmt::format(" {:>19}", cell.empty() ? "N/A" : cell);
    }
    text += "\n";
  }
  return text + "#\n";
}

std::string csv_header() {
  return "operation,backend,world_size,bytes,elements,type,reduction,root,in_place,iterations,min_us,p50_us,"
         "p99_us,"
         "max_us,skew_us,slowest_rank,algbw_gb_s,busbw_gb_s,wrong\n";
}

std::string csv_lines(const BenchRow& row) {
  std::string text;
  for (const bool in_place : {false, true}) {
    const auto& times = in_place ? row.in_place : row.out_of_place;
    if (!times) continue;
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{},{:.6g},{:.6g},{}\n",
        row.operation, row.backend, row.world_size, row.bytes, row.elements, row.type, row.reduction,
        row.root, in_place ? 1 : 0, row.iterations, times->min_us, times->p50_us, times->p99_us,
        times->max_us, times->skew_us, times->slowest_rank, algorithm_bandwidth(row.bytes, times->p50_us),
        bus_bandwidth(row, *times).value_or(0), times->wrong < 0 ? "" : std::to_string(times->wrong));
  }
  return text;
}

}  // namespace dtorch::report
