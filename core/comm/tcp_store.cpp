#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/listen.h"
#include "core/comm/bounded.h"
#include "core/comm/named_store.h"
#include "core/comm/reach.h"
#include "core/comm/rendezvous.h"

namespace dtorch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSilence{
    10'000};  ///< in which a store's answer must begin, and each part of it follow

StorePtr open_client(const std::string& name, const std::string& address, int port, Deadline deadline) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = deadline.remaining_ms();
  const QuietLibtorch quiet;
  try {
    auto client = c10::make_intrusive<c10d::TCPStore>(address, options);
    client->setTimeout(c10d::Store::kDefaultTimeout);
    // A server whose machine vanished says nothing, and libtorch would wait for its answer for ever.
    limit_silence(port, kSilence);
    return make_named_store(std::move(client), name);
  } catch (const c10::Error& error) {
    throw Error(ErrorKind::timeout, fmt::format("no store answers at {}: {}", name, first_lines(error)));
  }
}

class TcpStoreServer : public StoreServer {
 public:
  explicit TcpStoreServer(Fd listener) {
    const auto endpoint = local_endpoint(listener.get());
    port_ = endpoint.port;
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(port_);
    options.isServer = true;
    options.waitWorkers = false;
    options.masterListenFd = listener.get();
    const QuietLibtorch quiet;
    const auto name = fmt::format("tcp://{}", to_string(endpoint));
    try {
      auto server = c10::make_intrusive<c10d::TCPStore>(endpoint.host, options);
      listener.release();
      store_ = make_named_store(std::move(server), name);
    } catch (const c10::Error& error) {
      throw Error(ErrorKind::os_resource,
                  fmt::format("cannot serve the store {}: {}", name, first_lines(error)));
    }
  }

  int port() const override { return port_; }
  StorePtr store() const override { return store_; }

 private:
  int port_ = 0;
  StorePtr store_;
};

}  // namespace

std::unique_ptr<StoreServer> serve_store(int listen_fd) {
  return std::make_unique<TcpStoreServer>(Fd(listen_fd));
}

StorePtr connect_store(const std::string& host, int port, Deadline deadline) {
  // Neither getaddrinfo nor libtorch's handshake knows a deadline: a listener that never answers would hold
  // us for ever.
  constexpr auto kGrace = std::chrono::milliseconds(500);
  const auto name = fmt::format("tcp://{}", to_string(Endpoint{host, port}));
  auto result = std::make_shared<StorePtr>();
  run_bounded(
      [=] {
        *result = open_client(name, reach({host, port}, deadline), port, deadline);
      },
      deadline.later(kGrace),
      fmt::format(
          "no store could be reached at {}: what listens there accepts connections but does not answer",
          name),
      "does another program listen on that port, or is its name server not answering?");
  return *result;
}

}  // namespace dtorch
