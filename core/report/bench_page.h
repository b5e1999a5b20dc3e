// A benchmark as one HTML page.
#pragma once
#include <string>
#include <vector>

#include "core/base/bench_messages.h"

namespace dtorch::report {

/**
 * One file without scripts and without anything from elsewhere: for each operation the times and bus bandwidths over sizes,
 * a line a backend, and all figures in a table. Light or dark as the reader's browser is.
 */
std::string bench_page(const BenchRequest& request, const BenchStart& start,
                       const std::vector<BenchRow>& rows);

}  // namespace dtorch::report
