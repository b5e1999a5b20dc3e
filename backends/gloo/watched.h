// Gloo buffers whose waits can be ended from outside. Gloo itself does not wake a wait whose transfer has
// begun when the connection breaks or another thread gives up; it would sleep until its timeout.
#pragma once
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>

namespace dtorch::gloo_backend {

class WatchedBuffer;

/** The buffers in use. Outlives them. Thread-safe. */
class BufferRegistry {
 public:
  void add(WatchedBuffer* buffer);
  void remove(WatchedBuffer* buffer);
  /** Wakes the waits of all buffers that have something outstanding with a rank for which `broken` holds. */
  void wake(const std::function<bool(int)>& broken);
  /** Wakes all, and all that will be made. */
  void wake_for_good();

 private:
  std::mutex mutex_;
  std::set<WatchedBuffer*> buffers_;
  bool closed_ = false;
};

/** A Gloo transport context that makes watched buffers; all else is the inner one's. */
class WatchedTransport : public gloo::transport::Context {
 public:
  explicit WatchedTransport(std::shared_ptr<gloo::transport::Context> inner);

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
