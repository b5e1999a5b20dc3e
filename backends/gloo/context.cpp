#include "backends/gloo/context.h"

#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/signal_block.h"
#include "core/comm/address.h"

namespace dtorch::gloo_backend {
namespace {

constexpr std::size_t kMaxAddress = gloo::transport::Address::kMaxByteSize;

std::vector<char> address_for(const std::string& blob, int index, int their_rank) {
  // A rank publishes one address for each of the other ranks, in rank order without itself.
  const std::size_t position = static_cast<std::size_t>(index < their_rank ? index : index - 1);
  const std::size_t length = blob.empty() ? 0 : static_cast<unsigned char>(blob[0]);
  const std::size_t begin = 1 + position * length;
  if (length == 0 || length > kMaxAddress || begin + length > blob.size()) {
    throw PeerError(ErrorKind::lost, fmt::format("gloo: rank {} published malformed addresses", their_rank),
                    {their_rank});
  }
  return {blob.begin() + static_cast<std::ptrdiff_t>(begin),
          blob.begin() + static_cast<std::ptrdiff_t>(begin + length)};
}

}  // namespace

void MeshContext::connect(const StorePtr& store, const std::string& address, Deadline deadline) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  {
    // Gloo's thread writes to sockets whose other end may be gone; that must be an error, not the end of this process.
    const SignalBlock no_sigpipe(SIGPIPE);
    device_ = gloo::transport::tcp::CreateDevice(attributes);
  }
  transport_ = std::make_shared<WatchedTransport>(device_->createContext(rank, size),
                                                  [this](int peer) { return is_broken(peer); });
  transportContext_ = transport_;
  // Gloo waits five times this long for a connection.
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining());
  transport_->inner().setTimeout(
      std::clamp<std::chrono::milliseconds>(left / 5, std::chrono::milliseconds(10), std::chrono::hours(1)));
  std::string blob;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const auto bytes = transportContext_->createPair(peer)->address().bytes();
    if (blob.empty()) blob.push_back(static_cast<char>(bytes.size()));
    blob.append(bytes.begin(), bytes.end());
  }
  store->set("address/" + std::to_string(rank), blob);
  const auto blobs = gather_keys(store, "address", size, deadline);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    try {
      getPair(peer)->connect(address_for(blobs[static_cast<std::size_t>(peer)], rank, peer));
    } catch (const gloo::Exception& error) {
      const bool late = deadline.expired();
      throw PeerError(late ? ErrorKind::timeout : ErrorKind::lost,
                      fmt::format("gloo: cannot connect {} to rank {}: {}", address, peer, error.what()),
                      {peer}, "check firewalls and that the address is reachable from the other hosts");
    }
  }
}

void MeshContext::cut() {
  // Closing pairs does not wake waiters on this side; a receive that times out ends every pair with an error,
  // which does.
  const auto probe = transport_->inner().createUnboundBuffer(nullptr, 0);
  try {
    probe->waitRecv(std::chrono::milliseconds(1));
  } catch (const gloo::Exception&) {
    // Its time-out is the purpose.
  }
  transport_->buffers().wake_for_good();
}

bool MeshContext::is_broken(int peer) {
  if (peer == rank) return false;
  // Gloo does not tell whether a connection has ended. Asked to connect to an address of no family, a pair
  // that has failed throws its own error, and a sound one refuses the address.
  auto& pair = *getPair(peer);
  try {
    pair.connect(std::vector<char>(pair.address().bytes().size(), 0));
  } catch (const gloo::IoException&) {
    return true;
  } catch (const gloo::InvalidOperationException&) {
    return false;
  }
  return false;
}

std::vector<int> MeshContext::lost_ranks() {
  std::vector<int> lost;
  for (int peer = 0; peer < size; ++peer) {
    if (is_broken(peer)) lost.push_back(peer);
  }
  return lost;
}

void MeshContext::wake_orphans() { transport_->buffers().wake_orphans(); }

}  // namespace dtorch::gloo_backend
