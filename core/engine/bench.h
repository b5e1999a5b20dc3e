// What a benchmark's launcher asks before ranks start.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "core/base/bench_messages.h"

namespace dtorch::engine {

/** What will be timed, over which backends. Throws Error for a backend that is unknown or does not load here. */
nlohmann::json bench_preflight(const BenchRequest& request);

}  // namespace dtorch::engine
