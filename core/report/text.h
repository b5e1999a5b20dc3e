// Text of a given width. Internal to core/report.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dtorch::report {

/** Columns that TEXT takes on a terminal, rather too many than too few (East Asian characters and emoji count
 * two). */
int text_width(std::string_view text);
/** TEXT without control characters and broken UTF-8, which become '?'. */
std::string printable(std::string_view text);
/** TEXT cut to at most COLUMNS. */
std::string fit(std::string_view text, int columns);
/** Right-aligned in COLUMNS; cut if it is longer. */
std::string right(std::string_view text, int columns);
/** Left-aligned in COLUMNS; cut if it is longer. */
std::string left(std::string_view text, int columns);
/** "[#####----]" of COLUMNS columns (at least 3); SHARE is 0 to 1. */
std::string bar(double share, int columns);
/** "0.312", "12.3", "1.2e-05", "nan": a loss in at most 8 columns. */
std::string loss_text(double loss);
/** "12%", or "-" when it is not finite. */
std::string share_text(double share);
/** "1.39 ms", "2.1 s", or "-" when it is not finite. */
std::string milliseconds_text(double milliseconds);
/** The middle value (mean of the two middle ones); values that are not finite are left out; 0 of none. */
double median(std::vector<double> values);

}  // namespace dtorch::report
