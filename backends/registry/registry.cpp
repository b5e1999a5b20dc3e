#include "backends/registry/registry.h"

#include <array>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backends/gloo/factory.h"
#include "backends/tcp/factory.h"
#include "core/base/error.h"

namespace dtorch {

BackendTable backend_table() {
  static const std::array<const BackendFactory*, 2> table{&gloo_factory(), &tcp_factory()};
  return table;
}

const BackendFactory& find_backend(const std::string& name) {
  std::string known;
  std::string reasons;
  for (const auto* factory : backend_table()) {
    known += std::string(known.empty() ? "" : ", ") + std::string(factory->name());
    if (name != "auto" && name != factory->name()) continue;
    const auto availability = factory->probe();
    if (availability) return *factory;
    reasons += std::string(reasons.empty() ? "" : "; ") + availability.reason;
  }
  if (reasons.empty())
    throw Error(ErrorKind::spec, "unknown backend '" + name + "'", "known backends: auto, " + known);
  throw Error(ErrorKind::lost, "the backend '" + name + "' is not available: " + reasons);
}

}  // namespace dtorch
