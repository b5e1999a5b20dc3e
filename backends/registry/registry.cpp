#include "backends/registry/registry.h"

#include <fmt/format.h>

#include <array>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backends/gloo/factory.h"
#include "backends/shm/factory.h"
#include "backends/tcp/factory.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace dtorch {
namespace {

/** shm within one host, else tcp. */
class AutoFactory : public BackendFactory {
 public:
  std::string_view name() const override { return "auto"; }
  Availability probe() const override { return tcp_factory().probe(); }
  std::unique_ptr<Backend> create(const StorePtr& store, int rank, int world_size,
                                  const BackendOptions& options) const override {
    const bool shared = can_share_memory(store, rank, world_size, options.deadline);
    const auto& chosen = shared ? shm_factory() : tcp_factory();
    log_debug(fmt::format("auto: rank {} uses {}", rank, chosen.name()));
    return chosen.create(store, rank, world_size, options);
  }
};

}  // namespace

BackendTable backend_table() {
  static const std::array<const BackendFactory*, 3> table{&gloo_factory(), &tcp_factory(), &shm_factory()};
  return table;
}

const BackendFactory& find_backend(const std::string& name) {
  static const AutoFactory automatic;
  if (name == automatic.name()) return automatic;
  std::string known;
  for (const auto* factory : backend_table()) {
    known += fmt::format(", {}", factory->name());
    if (name != factory->name()) continue;
    if (const auto availability = factory->probe(); !availability) {
      throw Error(ErrorKind::lost,
                  fmt::format("the backend '{}' is not available: {}", name, availability.reason));
    }
    return *factory;
  }
  throw Error(ErrorKind::spec, "unknown backend '" + name + "'", "known backends: auto" + known);
}

PlannedBackend plan_backend(const std::string& asked, int world_size, int local_ranks) {
  const std::string name(find_backend(asked).name());
  if (name != "auto") return {name, "asked for"};
  if (may_share_memory(world_size, local_ranks)) return {"shm", "auto: all ranks are on one host"};
  if (local_ranks < world_size) return {"auto", "shm if all ranks turn out to be on one host, else tcp"};
  return {"tcp", "auto: more ranks than shm serves"};
}

}  // namespace dtorch
