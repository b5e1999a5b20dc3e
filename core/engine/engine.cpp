#include "core/engine/engine.h"

#include "core/engine/preflight.h"
#include "core/engine/run.h"

extern "C" const dtorch::engine::Engine* dtorch_engine() {
  using namespace dtorch::engine;
  static const Engine engine{kAbi, &run_rank, &run_bench_rank, &run_agent, &versions};
  return &engine;
}
