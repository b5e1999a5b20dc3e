#include "backends/gloo/factory.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/common/error.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backends/gloo/backend.h"
#include "core/comm/address.h"

namespace dtorch {
namespace {

/** libtorch_cpu exports a Gloo of its own, of another version: the headers fit only the one they came with.
 */
std::string foreign_symbols() {
  void (*const function)(const gloo::AllreduceOptions&) = &gloo::allreduce;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(function), &info) == 0 || info.dli_fname == nullptr) {
    return "gloo: cannot tell which library gloo::allreduce comes from";
  }
  const std::string_view path(info.dli_fname);
  const auto file = path.substr(path.rfind('/') + 1);
  if (file.starts_with("libgloo.")) return {};
  return fmt::format(
      "gloo:: functions come from {} instead of libgloo: libgloo must precede libtorch among the libraries "
      "of the program",
      path);
}

class GlooFactory : public BackendFactory {
 public:
  std::string_view name() const override { return "gloo"; }
  Availability probe() const override { return {foreign_symbols()}; }

  std::unique_ptr<Backend> create(const StorePtr& store, int rank, int world_size,
                                  const BackendOptions& options) const override {
    if (const auto reason = foreign_symbols(); !reason.empty()) throw Error(ErrorKind::lost, reason);
    std::shared_ptr<gloo_backend::MeshContext> context;
    if (world_size > 1) {
      const auto address = choose_address(store, rank, world_size, options.interface, options.deadline);
      context = std::make_shared<gloo_backend::MeshContext>(rank, world_size);
      try {
        context->connect(store, address, options.deadline);
      } catch (const gloo::Exception& error) {
        throw Error(ErrorKind::os_resource,
                    fmt::format("gloo: cannot listen on {}: {}", address, error.what()));
      }
    }
    return std::make_unique<gloo_backend::GlooBackend>(std::move(context), rank, world_size);
  }
};

}  // namespace

const BackendFactory& gloo_factory() {
  static const GlooFactory factory;
  return factory;
}

}  // namespace dtorch
