// A benchmark's rows as text: the table that readers of nccl-tests' output know, a comparison of backends, CSV.
#pragma once
#include <string>
#include <vector>

#include "core/base/bench_messages.h"

namespace dtorch::report {

/** The comment lines above a table that begins with this row: the operation, its backend, the columns. */
std::string bench_header(const BenchRow& first);
/**
 * size, count, type, redop, root, then time, algbw, busbw, #wrong out of place and in place, as nccl-tests; behind them min,
 * p99, max, skew (all us), the slowest rank, and busbw as a share of memcpy's speed. What was not measured is N/A.
 */
std::string bench_line(const BenchRow& row, double memcpy_gb_s);
/** The two lines that end a table: wrong elements in all, and the average bus bandwidth. */
std::string bench_footer(const std::vector<BenchRow>& rows);
/** One operation, one line a size, a time and a bus bandwidth for each backend; empty with fewer than two backends. */
std::string bench_comparison(const std::vector<BenchRow>& rows);

/** The backends of these rows, each once. */
std::vector<std::string> backends_of(const std::vector<BenchRow>& rows);

std::string csv_header();
/** One line a column group: in_place is 0 or 1. */
std::string csv_lines(const BenchRow& row);

}  // namespace dtorch::report
