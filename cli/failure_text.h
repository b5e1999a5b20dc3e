// Errors as people and as programs read them.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/messages.h"

namespace dtorch {

/**
 * The first cause in a few lines: "error: ..." with what happened, where (rank, host, step, collective,
 * signal), who is missing, the last lines that the rank printed, and the help. Ends with a newline. Spec
 * errors, which name their place themselves, stand as they are. `trains`: ranks count steps.
 */
std::string failure_text(const Failure& failure, const std::vector<std::string>& tail, bool colour,
                         bool trains = true);

/** {"event":"error","kind":...,"message":...,"help":...,"exit_code":n, and where it happened as far as it is
 * known}. */
nlohmann::json error_event(const Failure& failure, const std::vector<std::string>& tail);

}  // namespace dtorch
