// The board's table: one row a rank, or a few rows about many. Internal to core/report.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/report/board.h"

namespace dtorch::report {

/** What a row is about: a rank that has trained, or one that is still on its way. */
struct RankRow {
  int rank = 0;
  const StepRecord* step = nullptr;  ///< null: no step yet
  std::string phase;
};

struct TableStyle {
  int columns = 80;
  bool colour = false;
  std::optional<int> slow_rank;
};

/** The table's head. */
std::string table_head(const TableStyle& style);
/** One row a rank. */
std::vector<std::string> rank_rows(const std::vector<RankRow>& ranks, const TableStyle& style);
/** min, median, max of each column and the rank with the longest compute time: four rows however many ranks.
 */
std::vector<std::string> summary_rows(const std::vector<RankRow>& ranks, const TableStyle& style);

/** TEXT in a colour of a terminal ("1;33"), if COLOUR. */
std::string painted(const std::string& text, const char* code, bool colour);

}  // namespace dtorch::report
