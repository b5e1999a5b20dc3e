// Opening libdtorch.so, which the executable does not link so that light commands stay fast.
#pragma once
#include "core/engine/engine.h"

namespace dtorch::cli {

/**
 * Loads libdtorch.so from the executable's folder or ../lib beside it (about 0.3 s) and checks that it fits. The library stays
 * loaded. Throws Error(lost) that says which file was tried and why it failed.
 */
const engine::Engine& load_engine();

/** The exit code for what an engine call returned (0, or an ErrorKind + 1). */
int engine_exit_code(int status);

}  // namespace dtorch::cli
