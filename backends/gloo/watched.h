// Gloo buffers whose waits can be ended from outside. Gloo itself does not wake a wait whose transfer has
// begun when the connection breaks or another thread gives up; it would sleep until its timeout.
#pragma once
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

namespace dtorch::gloo_backend {

class WatchedBuffer;

/** The buffers in use. Outlives them. Thread-safe. */
class BufferRegistry {
 public:
  /** `broken` says whether the connection to a rank has ended. */
  explicit BufferRegistry(std::function<bool(int)> broken) : broken_(std::move(broken)) {}

  void add(WatchedBuffer* buffer);
  void remove(WatchedBuffer* buffer);
  bool broken(int peer) const { return broken_(peer); }
  bool closed() const { return closed_; }
  /** Wakes the waits of all buffers that have something outstanding with a rank whose connection has ended. */
  void wake_orphans();
  /** Wakes all, and all that will be made. */
  void wake_for_good();

 private:
  const std::function<bool(int)> broken_;
  std::mutex mutex_;
  std::set<WatchedBuffer*> buffers_;
  std::atomic<bool> closed_{false};
};

/** A Gloo transport context that makes watched buffers; all else is the inner one's. */
class WatchedTransport : public gloo::transport::Context {
 public:
  WatchedTransport(std::shared_ptr<gloo::transport::Context> inner, std::function<bool(int)> broken);

  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override { return inner_->getPair(peer); }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return inner_->createPair(peer); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* memory, size_t bytes) override;

  gloo::transport::Context& inner() { return *inner_; }
  BufferRegistry& buffers() { return *buffers_; }

 private:
  std::shared_ptr<gloo::transport::Context> inner_;
  std::shared_ptr<BufferRegistry> buffers_;
};

}  // namespace dtorch::gloo_backend
