// A process group's recent collectives as JSON: the answer to "what is this rank doing?".
#pragma once
#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>

#include "core/comm/process_group.h"

namespace dtorch {

/**
 * [{"group":"default","sequence":12,"operation":"all_reduce sum
 * float32[10]","bytes":40,"age_ms":5.2,"took_ms":null}, ...], oldest first; took_ms is null while the
 * collective is under way. Any thread.
 */
nlohmann::json ring_json(const ProcessGroup& group);
/** The control channel's "ring" message: the ring, and the stack of `thread` (usually the main one,
 * getpid()). Any thread. */
nlohmann::json stall_dump(const ProcessGroup& group, pid_t thread);

}  // namespace dtorch
