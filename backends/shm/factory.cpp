#include "backends/shm/factory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backends/shm/engine/engine.h"
#include "core/base/fd.h"
#include "core/base/host.h"
#include "core/comm/address.h"
#include "core/comm/byte_backend.h"

namespace dtorch {
namespace {

class ShmFactory : public BackendFactory {
 public:
  std::string_view name() const override { return "shm"; }
  Availability probe() const override {
    const Fd fd(::memfd_create("dtorch-probe", MFD_CLOEXEC));
    if (fd.valid()) return {};
    return {"no shared memory: " + errno_text("memfd_create", errno)};
  }

  std::unique_ptr<Backend> create(const StorePtr& store, int rank, int world_size,
                                  const BackendOptions& options) const override {
    const auto plain = make_plain_store(store);
    return make_byte_backend("shm", shm::connect_shm(*plain, rank, world_size, options.deadline));
  }
};

}  // namespace

const BackendFactory& shm_factory() {
  static const ShmFactory factory;
  return factory;
}

bool can_share_memory(const StorePtr& store, int rank, int world_size, Deadline deadline) {
  store->set("shm/place/" + std::to_string(rank), locality());
  const auto places = gather_keys(store, "shm/place", world_size, deadline);
  return may_share_memory(world_size, world_size) &&
         std::all_of(places.begin(), places.end(), [&](const auto& one) { return one == places.front(); });
}

bool may_share_memory(int world_size, int local_ranks) {
  return local_ranks == world_size && world_size <= shm::kMaxWorld;
}

}  // namespace dtorch
