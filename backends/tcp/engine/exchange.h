// The one primitive of all collectives: some memory to some peers and from some peers, at once.
#pragma once
#include <poll.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backends/tcp/engine/direct.h"
#include "backends/tcp/engine/fate.h"
#include "backends/tcp/engine/mesh.h"
#include "backends/tcp/engine/stream.h"
#include "core/bytes/byte_collectives.h"

namespace dtorch::tcp {

struct Send {
  int peer = 0;
  const void* data = nullptr;
  std::size_t bytes = 0;
};
struct Recv {
  int peer = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/** Takes what all peers have sent, piece by piece. */
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  /** Bytes [offset, offset + bytes) of every Recv have come, to the beginning of its memory. */
  virtual void take(std::size_t offset, std::size_t bytes) = 0;
};

/** Used by one thread at a time, but for missing(). */
class Exchange {
 public:
  Exchange(Mesh& mesh, Fate& fate, Direct& direct);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /** The next collective begins: what follows belongs to this call. */
  void begin(const ByteCall& call);
  /** The counts that all_to_all agrees on with each peer, in elements; for the call that has just begun. */
  void expect_counts(std::span<const std::int64_t> to, std::span<const std::int64_t> from);
  void end() { active_.store(false, std::memory_order_relaxed); }

  /** At most one send and one recv a peer. Throws PeerError. */
  void run(std::span<const Send> sends, std::span<const Recv> recvs);
  /** As run, but all recvs are of one size and their memory holds `piece` bytes only, taken by the sink whenever full. */
  void run_in_pieces(std::span<const Send> sends, std::span<const Recv> recvs, std::size_t piece,
                     PieceSink& sink);

  /** Peers of the call under way that have been asked for data and have sent nothing. Any thread. */
  std::vector<int> missing() const;
  /** Ends the connections for the peers; any thread. */
  void shut();

 private:
  struct Peer {
    std::unique_ptr<Stream> stream;
    // The sending of this run.
    Frame frame;
    const std::byte* from = nullptr;
    std::size_t to_send = 0;  ///< header and payload
    std::size_t sent = 0;
    bool sending = false;
    bool writable = true;  ///< as far as is known
    // The receiving of this run.
    std::byte* to = nullptr;
    std::size_t expected = 0;
    std::size_t received = 0;
    bool receiving = false;
    bool started = false;  ///< its frame is at the front of the stream, and right
    bool readable = true;
    // For good.
    bool departed = false;        ///< left in peace
    bool ahead = false;           ///< the frame at the front is for later, as far as this call knows
    std::vector<std::byte> rest;  ///< of a waiting frame that did not fit
    std::uint64_t waits = 0;      ///< the last call in which it said that it waits
    std::int64_t count_to = 0;
    std::int64_t count_from = 0;
    std::atomic<std::uint64_t> asked{0};  ///< the last call that wanted data of it
    std::atomic<std::uint64_t> heard{0};  ///< the last call that has got some
  };

  Peer& at(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  CallSignature signature_for(const Peer& peer) const;
  static bool throttled(const Peer& peer);
  void post(std::span<const Send> sends, std::span<const Recv> recvs);
  void loop();
  bool step();
  bool step_send(int rank);
  bool step_recv(int rank);
  bool next_piece();
  bool accept(int rank, const Frame& frame);
  void check() const;
  void idle(Clock::time_point since);
  void wait();
  short wanted(int rank);
  void look_at(int rank);
  void notice_departures();
  void hung_up(int rank);
  void ask();
  void write_rest(Peer& peer);
  [[noreturn]] void ended(int rank);
  std::vector<int> late() const;
  [[noreturn]] void throw_timeout() const;

  const int rank_;
  const int world_;
  const std::uint64_t token_;
  const bool spins_;
  Fate& fate_;
  Direct& direct_;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< by rank; null for this one
  Fd departures_;  ///< an epoll that tells once of each connection whose other end has closed

  ByteCall call_;
  std::atomic<std::uint64_t> number_{0};
  std::atomic<bool> active_{false};
  // This run: the ranks not done yet.
  std::vector<int> senders_;
  std::vector<int> receivers_;
  std::vector<int> all_receivers_;
  PieceSink* sink_ = nullptr;
  std::size_t offset_ = 0;  ///< of the piece under way
  std::size_t limit_ = 0;   ///< its end: no further bytes are received
  std::size_t piece_ = 0;
  bool asked_ = false;
  std::vector<pollfd> polled_;
  std::vector<int> polled_ranks_;
};

}  // namespace dtorch::tcp
