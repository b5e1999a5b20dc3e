// The second connection of each pair of ranks: sends and their recvs, and the last words of a rank that leaves.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backends/tcp/engine/fate.h"
#include "backends/tcp/engine/mesh.h"
#include "backends/tcp/engine/stream.h"
#include "core/bytes/byte_collectives.h"

namespace dtorch::tcp {

/**
 * A sender announces its call; the receiver answers once its recv is there; then the data goes straight into the
 * receiver's memory. One thread, started when first needed, reads all connections; it never writes, so that two
 * ranks that send much to each other cannot block each other. Any thread.
 */
class Direct {
 public:
  Direct(Mesh& mesh, Fate& fate);
  ~Direct();
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;

  void send(const void* data, std::size_t bytes, int destination, int tag, const ByteCall& call);
  void recv(void* data, std::size_t bytes, int source, int tag, const ByteCall& call);

  /** Tells everyone why this rank leaves, where that can be done without blocking, and ends the connections. */
  void say(const Farewell& farewell);
  /** What a peer whose other connection has ended said about it; nothing if it died. Blocks for a moment. */
  std::optional<Farewell> last_words(int peer);
  /** Wakes waiters, who look at the group's fate. */
  void wake() { changed_.notify_all(); }

 private:
  using Key = std::pair<int, int>;  // peer, tag
  struct Outgoing {
    std::optional<CallSignature> answer;
  };
  struct Incoming {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t done = 0;
    bool ready = false;  ///< answered: data may come
  };
  struct Peer {
    std::unique_ptr<Stream> stream;
    std::mutex writing;
    bool gone = false;
    std::optional<Farewell> words;
    std::vector<std::byte> farewell;  ///< as far as it has come
  };

  Frame frame(FrameKind kind, int tag, const CallSignature& signature, std::size_t length) const;
  Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  void write(int rank, const Frame& frame, const void* payload, Deadline deadline);
  void check_peers(int rank);
  template <typename Done>
  void wait(std::unique_lock<std::mutex>& lock, int rank, const ByteCall& call, const Done& done);
  void start_reading();
  void read_all();
  void read_from(int rank);
  bool take(int rank, Stream& stream, const Frame& frame);
  bool take_part(int rank, Stream& stream, const Frame& frame);
  void take_call(int rank, const Frame& frame);

  const int rank_;
  const int world_;
  const std::uint64_t token_;
  Fate& fate_;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< by rank; null for this one

  std::mutex mutex_;  ///< guards what follows, and gone, words and farewell of the peers
  std::condition_variable changed_;
  std::map<Key, Outgoing> outgoing_;
  std::map<Key, Incoming> incoming_;
  std::map<Key, CallSignature> announced_;
  bool stopping_ = false;
  std::thread reader_;
  Fd stop_;
};

/** The error of a peer whose connection has ended, given its last words. */
PeerError departure(int peer, const std::optional<Farewell>& words);

}  // namespace dtorch::tcp
