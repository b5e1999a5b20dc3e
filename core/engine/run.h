// What the Engine's table points to.
#pragma once
#include "core/engine/engine.h"

namespace dtorch::engine {

int run_rank(const RankRequest& request);
int run_bench_rank(const BenchRankRequest& request);
int run_agent(const AgentRequest& request);

}  // namespace dtorch::engine
