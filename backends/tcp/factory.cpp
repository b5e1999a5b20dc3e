#include "backends/tcp/factory.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backends/tcp/engine/engine.h"
#include "core/comm/address.h"
#include "core/comm/byte_backend.h"

namespace dtorch {
namespace {

class TcpFactory : public BackendFactory {
 public:
  std::string_view name() const override { return "tcp"; }
  Availability probe() const override { return {}; }

  std::unique_ptr<Backend> create(const StorePtr& store, int rank, int world_size,
                                  const BackendOptions& options) const override {
    const auto address = choose_address(store, rank, world_size, options.interface, options.deadline);
    const auto plain = make_plain_store(store);
    return make_byte_backend("tcp", connect_tcp(*plain, rank, world_size, address, options.deadline));
  }
};

}  // namespace

const BackendFactory& tcp_factory() {
  static const TcpFactory factory;
  return factory;
}

}  // namespace dtorch
