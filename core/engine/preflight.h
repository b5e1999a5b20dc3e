// What can be checked before any rank starts, and the plan that comes out of it.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "core/data/dataset.h"
#include "core/job/places.h"
#include "core/job/spec.h"

namespace dtorch::engine {

/**
 * Makes sure of data (downloads where allowed, progress as log lines), model, loss, optimizer, device, backend, and that
 * `local_ranks` ranks have room in this machine's memory. Throws Error; what is wrong with the spec is told all at once,
 * at its places.
 *
 * The plan: {"job", "world_size", "backend", "backend_reason", "init_method", "device", "seed", "epochs",
 * "steps_per_epoch", "steps", "batch": {"per_rank", "global"}, "dataset": {"type", "requested", "origin",
 * "train", "test", "item_shape": [..], "classes"}, "model": {"type", "activation", "parameters", "layers":
 * [{"name", "description", "parameters"}]}, "loss", "optimizer": {"type", "lr", "momentum", "dampening",
 * "weight_decay", "nesterov"}, "timeouts_ms": {"rendezvous", "init", "collective", "shutdown"}, "versions":
 * [..]}
 */
nlohmann::json preflight(const JobSpec& spec, const SpecPlaces& places, int local_ranks);

/**
 * Whether model, batches and this machine's memory fit the data that was found; throws all that does not, at its place.
 */
void check_fits(const JobSpec& spec, const DatasetInfo& info, const SpecPlaces& places, int local_ranks);

/** "libtorch 2.11.0", "backend gloo: available", one line each. */
std::vector<std::string> versions();

/** The device a rank computes on: "cpu". Throws Error(spec) for one that this build cannot use. */
std::string resolve_device(const std::string& device);

}  // namespace dtorch::engine
