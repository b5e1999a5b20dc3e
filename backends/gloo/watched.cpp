#include "backends/gloo/watched.h"

#include <gloo/common/error.h>

#include <deque>
#include <vector>

namespace dtorch::gloo_backend {

/**
 * Gives each transfer a Gloo buffer of its own, so that it is known which ones are outstanding: of several on one buffer Gloo
 * tells only how many have ended and which was the last. Waits end in the order of the calls; used by one thread, woken by any.
 */
class WatchedBuffer : public gloo::transport::UnboundBuffer {
 public:
  WatchedBuffer(std::shared_ptr<gloo::transport::Context> transport, std::shared_ptr<BufferRegistry> registry,
                void* memory, size_t bytes)
      : UnboundBuffer(memory, bytes), transport_(std::move(transport)), registry_(std::move(registry)) {
    registry_->add(this);
  }
  ~WatchedBuffer() override { registry_->remove(this); }

  bool waitRecv(int* source, std::chrono::milliseconds timeout) override {
    const int peer =
        wait(receives_, timeout, [](auto& buffer, auto limit) { return buffer.waitRecv(nullptr, limit); });
    if (source != nullptr) *source = peer;
    return true;
  }
  bool waitSend(int* destination, std::chrono::milliseconds timeout) override {
    const int peer =
        wait(sends_, timeout, [](auto& buffer, auto limit) { return buffer.waitSend(nullptr, limit); });
    if (destination != nullptr) *destination = peer;
    return true;
  }
  void abortWaitRecv() override { wake(); }
  void abortWaitSend() override { wake(); }

  void send(int peer, uint64_t slot, size_t offset, size_t bytes) override {
    begin(sends_, peer, offset, bytes).send(peer, slot);
  }
  void recv(int peer, uint64_t slot, size_t offset, size_t bytes) override {
    begin(receives_, peer, offset, bytes).recv(peer, slot);
  }
  void recv(std::vector<int> /*peers*/, uint64_t /*slot*/, size_t /*offset*/, size_t /*bytes*/) override {
    throw gloo::InvalidOperationException("receiving from any rank is not supported");
  }

  /** Called with the registry's lock held, so that the buffer lives. */
  void wake_if_orphaned() {
    bool orphaned = false;
    {
      const std::lock_guard lock(mutex_);
      for (const auto* transfers : {&receives_, &sends_}) {
        for (const auto& transfer : *transfers) orphaned = orphaned || registry_->broken(transfer.peer);
      }
    }
    if (orphaned) wake();
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    if (!receives_.empty()) receives_.front().buffer->abortWaitRecv();
    if (!sends_.empty()) sends_.front().buffer->abortWaitSend();
  }

 private:
  struct Transfer {
    int peer;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };
  using Transfers = std::deque<Transfer>;

  gloo::transport::UnboundBuffer& begin(Transfers& transfers, int peer, size_t offset, size_t bytes) {
    if (bytes == kUnspecifiedByteCount) bytes = size - offset;
    auto buffer = transport_->createUnboundBuffer(static_cast<char*>(ptr) + offset, bytes);
    const std::lock_guard lock(mutex_);
    transfers.push_back({peer, std::move(buffer)});
    return *transfers.back().buffer;
  }

  int end(Transfers& transfers, const Transfers::iterator& which) {
    const std::lock_guard lock(mutex_);
    const int peer = which->peer;
    transfers.erase(which);
    return peer;
  }

  /** `wait_one` is false when woken. Returns the rank whose transfer ended. */
  template <typename F>
  int wait(Transfers& transfers, std::chrono::milliseconds timeout, const F& wait_one) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (true) {
      // At the top: what wakes everybody may have come before this transfer began, or during the other waits below.
      if (registry_->closed()) throw gloo::IoException("the group was closed");
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      if (wait_one(*transfers.front().buffer, std::max(left, kMoment)))
        return end(transfers, transfers.begin());
      for (auto one = transfers.begin(); one != transfers.end(); ++one) {
        if (!registry_->broken(one->peer)) continue;
        // It has ended before the connection did, or never will: then this throws.
        while (!wait_one(*one->buffer, kMoment)) continue;
        return end(transfers, one);
      }
    }
  }

  static constexpr std::chrono::milliseconds kMoment{1};

  std::shared_ptr<gloo::transport::Context> transport_;
  std::shared_ptr<BufferRegistry> registry_;
  std::mutex mutex_;  // for the lists against wake(); only the using thread changes them
  Transfers receives_;
  Transfers sends_;
};

void BufferRegistry::add(WatchedBuffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.insert(buffer);
}

void BufferRegistry::remove(WatchedBuffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(buffer);
}

void BufferRegistry::wake_orphans() {
  const std::lock_guard lock(mutex_);
  for (auto* buffer : buffers_) buffer->wake_if_orphaned();
}

void BufferRegistry::wake_for_good() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (auto* buffer : buffers_) buffer->wake();
}

WatchedTransport::WatchedTransport(std::shared_ptr<gloo::transport::Context> inner,
                                   std::function<bool(int)> broken)
    : Context(inner->rank, inner->size),
      inner_(std::move(inner)),
      buffers_(std::make_shared<BufferRegistry>(std::move(broken))) {}

std::unique_ptr<gloo::transport::UnboundBuffer> WatchedTransport::createUnboundBuffer(void* memory,
                                                                                      size_t bytes) {
  return std::make_unique<WatchedBuffer>(inner_, buffers_, memory, bytes);
}

}  // namespace dtorch::gloo_backend
