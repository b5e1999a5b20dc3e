// The control channel between a launcher and one of its processes: JSON objects, one a line, over a Unix stream socket.
#pragma once
#include <cstdint>
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
   * Sends one message, blocking while the peer's buffer is full: a launcher that is stopped for a while must miss nothing.
   * False when the peer has gone, or when the deadline has passed before anything of the message was sent. What was cut off
   * by the deadline goes out before the next message. Throws Error(training) for a message over 4 MiB.
   */
  bool send(const nlohmann::json& message, Deadline deadline = Deadline(Clock::time_point::max()));
  /**
   * The same for a message that may be left out (a step's figures): does not wait for the peer. How many were is told to the peer, as a
   * warning, once it reads again.
   */
  bool offer(const nlohmann::json& message);
  /** The next message, or nothing at the deadline. Throws Error(lost) when the peer has closed its end. */
  std::optional<nlohmann::json> receive(Deadline deadline);
  /** Without blocking: whatever whole messages have arrived. `closed()` tells afterwards whether the peer hung up. */
  std::vector<nlohmann::json> read_available();
  bool closed() const { return closed_; }
  int fd() const { return socket_.get(); }

 private:
  // With send_mutex_ held.
  bool send_line(std::string line, Deadline deadline);
  bool push(Deadline deadline);
  void tell_left_out(Deadline deadline);
  // The reader's.
  std::optional<nlohmann::json> take_line();
  void fill();

  Fd socket_;
  std::mutex send_mutex_;
  std::string buffer_;       ///< what has been received
  std::size_t taken_ = 0;    ///< bytes of buffer_ that were messages already
  std::size_t scanned_ = 0;  ///< no line ends between taken_ and here
  bool closed_ = false;
  std::string unsent_;         ///< of a message that has begun
  std::int64_t left_out_ = 0;  ///< messages that were offered in vain
  bool gone_ = false;
};

/** Two connected ends, both close-on-exec. Throws Error(os_resource). */
std::pair<Fd, Fd> make_channel_pair();

}  // namespace dtorch
