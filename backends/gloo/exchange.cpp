#include "backends/gloo/exchange.h"

#include <gloo/common/error.h>

#include <algorithm>

namespace dtorch::gloo_backend {
namespace {

constexpr auto kGrace = std::chrono::milliseconds(1'000);
constexpr auto kParting = std::chrono::milliseconds(100);

std::size_t extent(const std::vector<Part>& parts) {
  std::size_t end = 0;
  for (const auto& part : parts) end = std::max(end, part.offset + part.bytes);
  return end;
}

}  // namespace

std::chrono::milliseconds gloo_timeout(Deadline deadline) { return deadline.remaining_ms() + kGrace; }

std::vector<int> all_peers(const MeshContext& context) {
  std::vector<int> peers;
  for (int peer = 0; peer < context.size; ++peer) {
    if (peer != context.rank) peers.push_back(peer);
  }
  return peers;
}

void exchange(MeshContext& context, const Exchange& plan, Deadline deadline, Progress& progress,
              const std::function<void(std::size_t index)>& on_arrival) {
  const auto outgoing =
      context.createUnboundBuffer(const_cast<void*>(plan.send_base), extent(plan.send_parts));
  const auto incoming = context.createUnboundBuffer(plan.recv_base, extent(plan.recv_parts));
  progress.expect(plan.peers);
  for (std::size_t i = 0; i < plan.peers.size(); ++i) {
    incoming->recv(plan.peers[i], plan.recv_slot, plan.recv_parts[i].offset, plan.recv_parts[i].bytes);
  }
  for (std::size_t i = 0; i < plan.peers.size(); ++i) {
    outgoing->send(plan.peers[i], plan.send_slot, plan.send_parts[i].offset, plan.send_parts[i].bytes);
  }
  std::size_t unsent = plan.peers.size();
  const auto timeout = gloo_timeout(deadline);
  try {
    for (std::size_t received = 0; received < plan.peers.size(); ++received) {
      int source = -1;
      incoming->waitRecv(&source, timeout);
      progress.arrived(source);
      const auto index = std::find(plan.peers.begin(), plan.peers.end(), source) - plan.peers.begin();
      if (on_arrival) on_arrival(static_cast<std::size_t>(index));
    }
    for (; unsent > 0; --unsent) outgoing->waitSend(timeout);
  } catch (const gloo::Exception&) {
    throw;
  } catch (...) {
    const auto error = std::current_exception();
    try {
      for (; unsent > 0; --unsent) outgoing->waitSend(kParting);
    } catch (const gloo::Exception&) {
      // A peer that has not come does not fetch its part; the error says more than this.
    }
    std::rethrow_exception(error);
  }
}

}  // namespace dtorch::gloo_backend
