// One connection as frames. Nothing here blocks.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>

#include "backends/tcp/engine/frame.h"
#include "core/base/deadline.h"
#include "core/base/fd.h"

namespace dtorch::tcp {

/** Thrown when the other end has closed the connection or it broke; 0: closed. */
struct StreamEnd {
  int error = 0;
};

/** How long a rank that leaves waits for what it has sent to arrive. */
constexpr std::chrono::seconds kLinger{1};

/** One thread reads, one (perhaps another) writes. */
class Stream {
 public:
  /** `fd` must be non-blocking. */
  Stream(Fd fd, const FrameRules& rules);

  int fd() const { return fd_.get(); }

  /** The frame that is being received; null while its header is not here. Throws StreamEnd, BrokenFrame. */
  const Frame* front();
  /** Moves up to `bytes` of the front frame's payload and tells how many; 0: none here now. Throws StreamEnd. */
  std::size_t read(void* to, std::size_t bytes);
  /** Payload of the front frame that has not been read. */
  std::size_t left() const { return left_; }
  /** Done with the front frame, all of whose payload has been read. */
  void pop();

  /** Sends what fits of the frame and its payload, from the byte `sent` of both together on, at most `limit` bytes.
   * Tells how many; 0: none now. Throws StreamEnd. */
  std::size_t write(const Frame& frame, const void* payload, std::size_t sent, std::size_t limit);
  /** The peer reads an end once it has read what was sent. Any thread. */
  void shut();
  /** Waits until the peer's host has all that was sent, and forgets what comes: closing would else reset the connection
   * under it. */
  void linger(Deadline deadline);

 private:
  std::size_t receive(void* to, std::size_t bytes);

  Fd fd_;
  FrameRules rules_;
  Frame front_;
  bool has_front_ = false;
  std::size_t left_ = 0;
  // Bytes received ahead of their use, so that a header and a small payload cost one system call.
  std::unique_ptr<std::byte[]> inbox_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace dtorch::tcp
