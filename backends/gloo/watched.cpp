#include "backends/gloo/watched.h"

#include <gloo/common/error.h>

#include <vector>

namespace dtorch::gloo_backend {

/** Delegates to a Gloo buffer and remembers which ranks it has sends and receives under way with. */
class WatchedBuffer : public gloo::transport::UnboundBuffer {
 public:
  WatchedBuffer(std::unique_ptr<gloo::transport::UnboundBuffer> inner,
                std::shared_ptr<BufferRegistry> registry, int world)
      : UnboundBuffer(inner->ptr, inner->size),
        inner_(std::move(inner)),
        registry_(std::move(registry)),
        outstanding_(static_cast<std::size_t>(world), 0) {
    registry_->add(this);
  }
  ~WatchedBuffer() override { registry_->remove(this); }

  bool waitRecv(int* source, std::chrono::milliseconds timeout) override {
    int peer = -1;
    if (!inner_->waitRecv(&peer, timeout)) throw gloo::IoException("woken while receiving");
    completed(peer);
    if (source != nullptr) *source = peer;
    return true;
  }
  bool waitSend(int* destination, std::chrono::milliseconds timeout) override {
    int peer = -1;
    if (!inner_->waitSend(&peer, timeout)) throw gloo::IoException("woken while sending");
    completed(peer);
    if (destination != nullptr) *destination = peer;
    return true;
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }

  void send(int peer, uint64_t slot, size_t offset, size_t bytes) override {
    begun(peer);
    inner_->send(peer, slot, offset, bytes);
  }
  void recv(int peer, uint64_t slot, size_t offset, size_t bytes) override {
    begun(peer);
    inner_->recv(peer, slot, offset, bytes);
  }
  void recv(std::vector<int> peers, uint64_t slot, size_t offset, size_t bytes) override {
    for (const int peer : peers) begun(peer);
    inner_->recv(std::move(peers), slot, offset, bytes);
  }

  /** Called with the registry's lock held, so that the buffer lives. */
  void wake_if(const std::function<bool(int)>& broken) {
    {
      const std::lock_guard lock(mutex_);
      bool affected = false;
      for (std::size_t peer = 0; peer < outstanding_.size(); ++peer) {
        affected = affected || (outstanding_[peer] > 0 && broken(static_cast<int>(peer)));
      }
      if (!affected) return;
    }
    wake();
  }
  void wake() {
    inner_->abortWaitRecv();
    inner_->abortWaitSend();
  }

 private:
  void begun(int peer) {
    const std::lock_guard lock(mutex_);
    ++outstanding_.at(static_cast<std::size_t>(peer));
  }
  void completed(int peer) {
    const std::lock_guard lock(mutex_);
    if (peer >= 0) --outstanding_.at(static_cast<std::size_t>(peer));
  }

  std::unique_ptr<gloo::transport::UnboundBuffer> inner_;
  std::shared_ptr<BufferRegistry> registry_;
  std::mutex mutex_;
  std::vector<int> outstanding_;
};

void BufferRegistry::add(WatchedBuffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.insert(buffer);
  if (closed_) buffer->wake();
}

void BufferRegistry::remove(WatchedBuffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(buffer);
}

void BufferRegistry::wake(const std::function<bool(int)>& broken) {
  const std::lock_guard lock(mutex_);
  for (auto* buffer : buffers_) buffer->wake_if(broken);
}

void BufferRegistry::wake_for_good() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (auto* buffer : buffers_) buffer->wake();
}

WatchedTransport::WatchedTransport(std::shared_ptr<gloo::transport::Context> inner)
    : Context(inner->rank, inner->size),
      inner_(std::move(inner)),
      buffers_(std::make_shared<BufferRegistry>()) {}

std::unique_ptr<gloo::transport::UnboundBuffer> WatchedTransport::createUnboundBuffer(void* memory,
                                                                                      size_t bytes) {
  return std::make_unique<WatchedBuffer>(inner_->createUnboundBuffer(memory, bytes), buffers_, size);
}

}  // namespace dtorch::gloo_backend
