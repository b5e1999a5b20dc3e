// The control channel between a launcher and one of its processes: JSON objects, one a line, over a Unix stream socket.
#pragma once
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/fd.h"

namespace dtorch {

/**
 * One end of a control channel. `send` may be called from any thread; `receive`/`read_available` from one thread at a
 * time. A message is at most 4 MiB; a longer or unparsable line is an Error(lost) that names the channel.
 */
class Channel {
 public:
  explicit Channel(Fd socket) : socket_(std::move(socket)) {}

  /**
   * Sends one message, blocking while the peer's buffer is full (at most 5 s). False when the peer has gone or does
   * not read. Throws Error(training) for a message over 4 MiB.
   */
  bool send(const nlohmann::json& message);
  /** The next message, or nothing at the deadline. Throws Error(lost) when the peer has closed its end. */
  std::optional<nlohmann::json> receive(Deadline deadline);
  /** Without blocking: whatever whole messages have arrived. `closed()` tells afterwards whether the peer hung up. */
  std::vector<nlohmann::json> read_available();
  bool closed() const { return closed_; }
  int fd() const { return socket_.get(); }

 private:
  std::optional<nlohmann::json> take_line();
  void fill();

  Fd socket_;
  std::mutex send_mutex_;
  std::string buffer_;
  bool closed_ = false;
  bool broken_ = false;  ///< a message was cut off: whatever followed it could not be parsed
};

/** Two connected ends, both close-on-exec. Throws Error(os_resource). */
std::pair<Fd, Fd> make_channel_pair();

}  // namespace dtorch
