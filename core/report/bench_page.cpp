#include "core/report/bench_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/base/units.h"
#include "core/report/bandwidth.h"
#include "core/report/bench_table.h"
#include "core/report/plot.h"

namespace dtorch::report {
namespace {

constexpr const char* kPageStyle =
    R"(body{background:var(--page);color:var(--text);font:15px/1.5 sans-serif;margin:0 auto;max-width:1100px;padding:1rem}
.plots{display:flex;flex-wrap:wrap;gap:1rem}.plots>svg{flex:1 1 320px}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--faint);white-space:nowrap}
td.wrong{color:var(--c1);font-weight:700}
)";

const BenchTimes& shown_times(const BenchRow& row) {
  return row.in_place ? *row.in_place : *row.out_of_place;
}

Plot plot_of(const std::vector<BenchRow>& rows, bool bandwidth) {
  Plot plot;
  plot.title = rows.front().operation + (bandwidth ? ": bus bandwidth" : ": time of a call");
  plot.x_label = "size";
  plot.y_label = bandwidth ? "GB/s" : "µs, median";
  for (const auto& backend : backends_of(rows)) {
    PlotSeries series{backend, {}};
    for (const BenchRow& row : rows) {
      if (row.backend != backend || !row.out_of_place || row.bytes == 0) continue;
      const BenchTimes& times = shown_times(row);
      const double value = bandwidth ? bus_bandwidth(row, times).value_or(0) : times.p50_us;
      if (value > 0) series.points.emplace_back(static_cast<double>(row.bytes), value);
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

std::string times_cells(const BenchRow& row, const BenchTimes& times, const char* form) {
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td>"
      "<td>{:.3f}</td><td>{:.3f}</td><td>{:.2f}</td><td>{}</td><td{}>{}</td></tr>\n",
      escape_html(row.backend), size_text(row.bytes), form, times.min_us, times.p50_us, times.p99_us,
      times.max_us, algorithm_bandwidth(row.bytes, times.p50_us), bus_bandwidth(row, times).value_or(0),
      times.skew_us, times.slowest_rank, times.wrong > 0 ? " class=\"wrong\"" : "",
      times.wrong < 0 ? "not checked" : std::to_string(times.wrong));
}

std::string table_of(const std::vector<BenchRow>& rows) {
  std::string html =
      "<div class=\"wide\"><table>\n<tr><th>backend<th>size<th>in place<th>min µs<th>p50 µs<th>p99 µs<th>max "
      "µs"
      "<th>algbw GB/s<th>busbw GB/s<th>skew µs<th>slowest rank<th>wrong</tr>\n";
  for (const BenchRow& row : rows) {
    if (row.out_of_place) html += times_cells(row, *row.out_of_place, "no");
    if (row.in_place) html += times_cells(row, *row.in_place, "yes");
    if (!row.note.empty()) {
      html += fmt::format("<tr><td>{}</td><td>{}</td><td colspan=\"10\">{}</td></tr>\n",
                          escape_html(row.backend), size_text(row.bytes), escape_html(row.note));
    }
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string bench_page(const BenchRequest& request, const BenchStart& start,
                       const std::vector<BenchRow>& rows) {
  const std::set<std::string> hosts(start.hosts.begin(), start.hosts.end());
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>dtorch "
      "bench</title>\n"
      "<style>\n{}{}</style>\n<h1>dtorch bench</h1>\n"
      "<p>{} ranks on {}. {} {}. memcpy with all ranks at once: {:.2f} GB/s a rank. A call takes as long as "
      "its "
      "slowest rank; bandwidths are of the median call, as nccl-tests counts them.</p>\n",
      plot_style(), kPageStyle, request.world_size, escape_html(fmt::format("{}", fmt::join(hosts, ", "))),
      escape_html(request.type), escape_html(request.reduction), start.memcpy_gb_s);
  for (auto begin = rows.begin(); begin != rows.end();) {
    const auto end = std::find_if(begin, rows.end(),
                                  [&](const BenchRow& row) { return row.operation != begin->operation; });
    const std::vector<BenchRow> of_operation(begin, end);
    html += fmt::format("<h2>{}</h2>\n<div class=\"plots\">\n{}{}</div>\n{}", escape_html(begin->operation),
                        svg_of(plot_of(of_operation, false)), svg_of(plot_of(of_operation, true)),
                        table_of(of_operation));
    begin = end;
  }
  return html + "</html>\n";
}

}  // namespace dtorch::report
