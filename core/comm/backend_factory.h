// How a backend is found and made. backends/registry holds the one table of factories, which is handed down.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/deadline.h"
#include "core/comm/backend.h"

namespace c10d {
class Store;
}

namespace dtorch {

/** libtorch's store: what ranks exchange addresses and small values through before they are connected. */
using StorePtr = c10::intrusive_ptr<c10d::Store>;

struct BackendOptions {
  std::string interface;  ///< network interface or address to bind; empty: the one that routes to the peers
  Deadline deadline;      ///< for connecting to all peers
};

/** Empty reason: available. */
struct Availability {
  std::string reason;
  explicit operator bool() const { return reason.empty(); }
};

class BackendFactory {
 public:
  virtual ~BackendFactory() = default;
  virtual std::string_view name() const = 0;
  /** Whether it can work on this machine, or why not. Quick, throws nothing, connects nowhere. */
  virtual Availability probe() const = 0;
  /** Connects to all peers through the store (keys are the group's own). Throws Error(timeout, lost, os_resource). */
  virtual std::unique_ptr<Backend> create(const StorePtr& store, int rank, int world_size,
                                          const BackendOptions& options) const = 0;
};

/** A table of factories. */
using BackendTable = std::span<const BackendFactory* const>;

/**
 * The factory of that name; that of "auto" picks a backend once the ranks know each other. Throws Error(spec) listing the known ones, or
 * Error(lost) with the probe's reason. Defined by backends/registry, which alone knows all backends.
 */
const BackendFactory& find_backend(const std::string& name);

}  // namespace dtorch
