// What can be checked before any rank starts, and the plan that comes out of it.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "core/job/spec.h"

namespace dtorch::engine {

/**
 * Makes sure of data (downloads where allowed, progress as log lines), model, loss, optimizer, device and
 * backend. Throws Error.
 *
 * The plan: {"job", "world_size", "backend", "backend_reason", "init_method", "device", "seed", "epochs",
 * "steps_per_epoch", "steps", "batch": {"per_rank", "global"}, "dataset": {"type", "requested", "origin",
 * "train", "test", "item_shape": [..], "classes"}, "model": {"type", "activation", "parameters", "layers":
 * [{"name", "description", "parameters"}]}, "loss", "optimizer": {"type", "lr", "momentum", "dampening",
 * "weight_decay", "nesterov"}, "timeouts_ms": {"rendezvous", "init", "collective", "shutdown"}, "versions":
 * [..]}
 */
nlohmann::json preflight(const JobSpec& spec);

/** "libtorch 2.11.0", "backend gloo: available", one line each. */
std::vector<std::string> versions();

/** The device a rank computes on: "cpu". Throws Error(spec) for one that this build cannot use. */
std::string resolve_device(const std::string& device);

}  // namespace dtorch::engine
