#include "cli/bench_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/exit_codes.h"
#include "cli/failure_text.h"
#include "core/base/json_text.h"
#include "core/report/bench_page.h"
#include "core/report/bench_table.h"
#include "core/report/text.h"

namespace dtorch {
namespace {

using nlohmann::json;

/** A row's JSON with the bandwidths that follow from it. */
json row_event(const BenchRow& row) {
  json event = row;
  for (const auto& [name, times] :
       {std::pair("out_of_place", row.out_of_place), std::pair("in_place", row.in_place)}) {
    if (!times) continue;
    event[name]["algbw_gb_s"] = report::algorithm_bandwidth(row.bytes, times->p50_us);
    event[name]["busbw_gb_s"] = report::bus_bandwidth(row, *times).value_or(0);
  }
  return event;
}

std::int64_t wrong_elements(const std::vector<BenchRow>& rows) {
  std::int64_t wrong = 0;
  for (const BenchRow& row : rows) {
    for (const auto& times : {row.out_of_place, row.in_place}) {
      if (times) wrong += std::max<std::int64_t>(times->wrong, 0);
    }
  }
  return wrong;
}

}  // namespace

BenchView::BenchView(BenchViewOptions options) : options_(std::move(options)) {
  if (!options_.html.empty()) page_.emplace(options_.html);
  if (options_.csv) print(report::csv_header());
}

void BenchView::print(const std::string& text) { out_.write(text); }

void BenchView::event(const char* name, const json& members) {
  if (!options_.style.json) return;
  json line = members;
  line["event"] = name;
  print(json_text(line) + "\n");
}

void BenchView::say(const std::string& line) { err_.write(line + "\n"); }

void BenchView::bench_start(const BenchStart& start) {
  start_ = start;
  event("bench_start", start);
  if (!table()) return;
  const BenchRequest& request = options_.request;
  const std::set<std::string> hosts(start.hosts.begin(), start.hosts.end());
  print(fmt::format(
      "# dtorch bench: {} rank{} on {}, {}, warmup {}, iterations {}, checked {}\n"
      "# memcpy, all ranks at once: {:.2f} GB/s a rank\n#\n",
      request.world_size, request.world_size == 1 ? "" : "s",
      report::printable(fmt::format("{}", fmt::join(hosts, ", "))), fmt::join(request.backends, ", "),
      request.warmup, request.iterations == 0 ? "as the size allows" : std::to_string(request.iterations),
      request.checks, start.memcpy_gb_s));
}

void BenchView::bench_row(const BenchRow& row) {
  const bool first = operation_begin_ == rows_.size() || rows_.back().operation != row.operation;
  if (first) {
    end_operation();
    begin_operation(row);
  }
  rows_.push_back(row);
  event("bench", row_event(row));
  if (options_.csv) print(report::csv_lines(row));
  if (table() && live()) print(report::bench_line(row, start_.memcpy_gb_s));
}

void BenchView::begin_operation(const BenchRow& row) {
  operation_begin_ = rows_.size();
  if (!table()) return;
  if (live()) {
    print(report::bench_header(row));
  } else if (options_.style.progress != Progress::none) {
    say(fmt::format("dtorch: timing {} over {} backends", row.operation, options_.request.backends.size()));
  }
}

void BenchView::end_operation() {
  const std::vector<BenchRow> rows(rows_.begin() + static_cast<std::ptrdiff_t>(operation_begin_),
                                   rows_.end());
  if (rows.empty() || !table()) return;
  if (live()) return print(report::bench_footer(rows));
  for (const auto& backend : report::backends_of(rows)) {
    std::vector<BenchRow> of_backend;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(of_backend),
                 [&](const BenchRow& row) { return row.backend == backend; });
    print(report::bench_header(of_backend.front()));
    for (const BenchRow& row : of_backend) print(report::bench_line(row, start_.memcpy_gb_s));
    print(report::bench_footer(of_backend));
  }
  print(report::bench_comparison(rows));
}

void BenchView::log(int rank, const std::string& level, const std::string& text) {
  const bool warning = level == "warning";
  if (options_.style.quiet && !warning) return;
  say(fmt::format("{}{}{}", rank >= 0 ? fmt::format("[rank {}] ", rank) : "", warning ? "warning: " : "",
                  report::printable(text)));
}

void BenchView::output(int rank, bool /*is_stderr*/, const std::string& line) {
  say(fmt::format("[rank {}] {}", rank, report::printable(line)));
}

void BenchView::print_fits() {
  for (const auto& line : report::fit_rows(rows_)) {
    event("fit", {{"operation", line.operation},
                  {"backend", line.backend},
                  {"latency_us", line.latency_us},
                  {"gb_s", line.gb_s},
                  {"worst_error", line.worst_error}});
    if (table()) {
      print(fmt::format("# {} over {}: {:.2f} us + bytes / {:.2f} GB/s (off by up to {:.0f}%)\n",
                        line.operation, line.backend, line.latency_us, line.gb_s, line.worst_error * 100));
    }
  }
}

std::vector<std::string> BenchView::failed_expectations() {
  std::vector<std::string> failed;
  for (const auto& expectation : options_.expectations) {
    for (const BenchRow& row : rows_) {
      if (!report::concerns(expectation, row)) continue;
      const std::string why = report::unmet(expectation, row);
      event("expectation", {{"text", expectation.text}, {"backend", row.backend}, {"met", why.empty()}});
      if (!why.empty()) failed.push_back(why);
    }
  }
  return failed;
}

int BenchView::finish(const JobOutcome& outcome) {
  end_operation();
  Failure failure;
  if (outcome.failure) {
    failure = *outcome.failure;
  } else {
    if (options_.fit) print_fits();
    if (page_) page_->commit(report::bench_page(options_.request, start_, rows_));
    const auto failed = failed_expectations();
    const std::int64_t wrong = wrong_elements(rows_);
    out_.flush();
    const auto unwritten = out_.failure();
    const bool nothing =
        std::all_of(rows_.begin(), rows_.end(), [](const BenchRow& row) { return !row.note.empty(); });
    if (failed.empty() && wrong == 0 && !unwritten && !nothing) return 0;
    if (nothing) {
      failure.kind = ErrorKind::usage;
      failure.message = "nothing could be timed" + (rows_.empty() ? "" : ": " + rows_.front().note);
    }
    if (unwritten) failure = to_failure(*unwritten);
    if (!failed.empty()) {
      failure.kind = ErrorKind::expectation;
      failure.message = fmt::format("not as expected: {}", fmt::join(failed, "; "));
    }
    if (wrong != 0) {
      failure.kind = ErrorKind::training;
      failure.message = fmt::format("{} elements of results are wrong", wrong);
      failure.help = "see #wrong above; a backend that gives wrong results must not train";
    }
  }
  event("error", error_event(failure, outcome.tail));
  out_.flush();
  err_.write(failure_text(failure, outcome.tail, options_.style.stderr_colour));
  err_.flush();
  return exit_code(failure);
}

}  // namespace dtorch
