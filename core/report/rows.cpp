#include "core/report/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/units.h"
#include "core/report/text.h"

namespace dtorch::report {
namespace {

constexpr const char* kBold = "1";
constexpr const char* kSlow = "1;33";
constexpr const char* kDim = "2";
constexpr const char* kBad = "1;31";
constexpr int kNameWidth = 9;  // "rank", "slowest"

std::string memory_text(double bytes) {
  // What came through a double may be 2^64, which no integer holds.
  return human_size(bytes < 1.8e19 ? static_cast<std::uint64_t>(bytes)
                                   : std::numeric_limits<std::uint64_t>::max());
}

/** A column of figures. When the window is narrow, those with the highest `rank` go first. */
struct Column {
  const char* name;
  int width;
  int rank;
  double (*value)(const StepRecord& record);
  std::string (*text)(double value);
};

constexpr std::array<Column, 7> kColumns{{
    {"loss", 8, 0, [](const StepRecord& r) { return r.loss; }, loss_text},
    {"samples/s", 9, 1, [](const StepRecord& r) { return r.samples_per_s; }, human_count},
    {"step", 8, 4, [](const StepRecord& r) { return r.step_ms; }, milliseconds_text},
    {"compute", 8, 2, [](const StepRecord& r) { return r.compute_ms; }, milliseconds_text},
    {"comm", 5, 3, [](const StepRecord& r) { return r.comm_share; }, share_text},
    {"data", 5, 5, [](const StepRecord& r) { return r.data_share; }, share_text},
    {"memory", 8, 6, [](const StepRecord& r) { return static_cast<double>(r.memory_bytes); }, memory_text},
}};

/** The columns that fit beside a row's name, in their order. */
std::vector<const Column*> fitting(int columns) {
  std::vector<const Column*> shown;
  for (const Column& column : kColumns) shown.push_back(&column);
  const auto width = [&] {
    int sum = kNameWidth;
    for (const Column* column : shown) sum += 1 + column->width;
    return sum;
  };
  while (!shown.empty() && width() > columns) {
    shown.erase(std::max_element(shown.begin(), shown.end(),
                                 [](const Column* a, const Column* b) { return a->rank < b->rank; }));
  }
  return shown;
}

std::string row(const std::string& name, const std::vector<std::string>& cells,
                const std::vector<const Column*>& columns) {
  std::string text = left(name, kNameWidth);
  for (std::size_t i = 0; i < columns.size(); ++i)
    text.append(1, ' ').append(right(cells[i], columns[i]->width));
  return text;
}

std::vector<std::string> cells_of(const StepRecord& record, const std::vector<const Column*>& columns) {
  std::vector<std::string> cells;
  for (const Column* column : columns) cells.push_back(column->text(column->value(record)));
  return cells;
}

/** ROW, then NOTE if there is room, cut to the window and painted. */
std::string finished(std::string text, const std::string& note, const char* code, const TableStyle& style) {
  if (!note.empty()) text += "  " + note;
  return painted(fit(text, style.columns), code, style.colour && code != nullptr);
}

std::string row_of(const RankRow& rank, const TableStyle& style) {
  const std::string name = fmt::format("{:>4}", rank.rank);
  if (rank.step == nullptr) return finished(left(name, kNameWidth), rank.phase, kDim, style);
  const auto columns = fitting(style.columns);
  const std::string text = row(name, cells_of(*rank.step, columns), columns);
  if (!std::isfinite(rank.step->loss)) return finished(text, rank.phase, kBad, style);
  if (style.slow_rank == rank.rank) return finished(text, "slow", kSlow, style);
  return finished(text, rank.phase == "training" ? "" : rank.phase, nullptr, style);
}

}  // namespace

std::string table_head(const TableStyle& style) {
  const auto columns = fitting(style.columns);
  std::vector<std::string> names;
  for (const Column* column : columns) names.emplace_back(column->name);
  return finished(row("rank", names, columns), "", kBold, style);
}

std::vector<std::string> rank_rows(const std::vector<RankRow>& ranks, const TableStyle& style) {
  std::vector<std::string> rows;
  for (const RankRow& rank : ranks) rows.push_back(row_of(rank, style));
  return rows;
}

std::vector<std::string> summary_rows(const std::vector<RankRow>& ranks, const TableStyle& style) {
  const auto columns = fitting(style.columns);
  std::vector<std::string> low, middle, high;
  for (const Column* column : columns) {
    std::vector<double> values;
    for (const RankRow& rank : ranks) {
      if (rank.step != nullptr && std::isfinite(column->value(*rank.step)))
        values.push_back(column->value(*rank.step));
    }
    const bool none = values.empty();
    low.push_back(none ? "-" : column->text(*std::min_element(values.begin(), values.end())));
    middle.push_back(none ? "-" : column->text(median(values)));
    high.push_back(none ? "-" : column->text(*std::max_element(values.begin(), values.end())));
  }
  std::vector<std::string> rows{finished(row("min", low, columns), "", nullptr, style),
                                finished(row("median", middle, columns), "", nullptr, style),
                                finished(row("max", high, columns), "", nullptr, style)};
  const RankRow* slowest = nullptr;
  for (const RankRow& rank : ranks) {
    if (rank.step != nullptr && (slowest == nullptr || rank.step->compute_ms > slowest->step->compute_ms))
      slowest = &rank;
  }
  if (slowest == nullptr) return rows;
  const bool stands_out = style.slow_rank == slowest->rank;
  rows.push_back(
      finished(row(fmt::format("rank {}", slowest->rank), cells_of(*slowest->step, columns), columns),
               stands_out ? "slow" : "slowest", stands_out ? kSlow : nullptr, style));
  return rows;
}

std::string painted(const std::string& text, const char* code, bool colour) {
  return colour && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
}

}  // namespace dtorch::report
