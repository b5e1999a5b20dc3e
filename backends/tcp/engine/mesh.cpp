#include "backends/tcp/engine/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <list>
#include <optional>
#include <random>
#include <thread>

#include "backends/tcp/engine/socket.h"
#include "core/base/log.h"
#include "core/bytes/peer_error.h"

namespace dtorch::tcp {
namespace {

constexpr int kSliceMs = 50;

/** The first bytes on a connection, from the rank that connects, and the answer. */
struct Hello {
  static constexpr std::uint32_t kMagic = 0x6f6c6c68;
  std::uint32_t magic = kMagic;
  std::uint32_t version = Frame::kVersion;
  std::uint64_t token = 0;
  std::int32_t rank = 0;
  std::int32_t world = 0;
  std::int32_t channel = 0;
  std::int32_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<Hello> && sizeof(Hello) == 32);

struct Endpoint {
  std::string address;
  std::uint16_t port = 0;
};

[[noreturn]] void throw_missing(std::vector<int> ranks) {
  throw PeerError(ErrorKind::timeout,
                  fmt::format("tcp: rank {} did not come to connect in time", fmt::join(ranks, ", ")), ranks);
}

template <typename T>
bool parse_number(std::string_view text, T& value, int base = 10) {
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  return error == std::errc() && stop == end;
}

Endpoint parse_endpoint(int rank, const std::string& text) {
  Endpoint endpoint;
  const auto space = text.find(' ');
  if (space == std::string::npos || !parse_number(std::string_view(text).substr(space + 1), endpoint.port))
    throw PeerError(ErrorKind::lost, fmt::format("tcp: rank {} left no address but '{}'", rank, text),
                    {rank});
  endpoint.address = text.substr(0, space);
  return endpoint;
}

std::string key_of(int rank) { return "tcp/rank/" + std::to_string(rank); }

class Connector {
 public:
  Connector(PlainStore& store, Mesh& mesh, const std::string& address, Deadline deadline)
      : store_(store), mesh_(mesh), address_(address), deadline_(deadline), listener_(listen_on(address)) {
    mesh_.collective.resize(static_cast<std::size_t>(mesh_.world));
    mesh_.direct.resize(static_cast<std::size_t>(mesh_.world));
  }

  void run() {
    exchange_addresses();
    for (int peer = 0; peer < mesh_.rank; ++peer) {
      for (const auto channel : {Channel::collective, Channel::direct}) reach(peer, channel);
    }
    accept_others();
  }

 private:
  void exchange_addresses();
  void reach(int peer, Channel channel);
  Fd try_reach(const Address& to, const Hello& hello, int peer) const;
  void accept_others();
  void accept_new();
  bool listen_to(int fd, Hello& hello, std::size_t& got);
  Fd& place(int peer, std::int32_t channel) {
    auto& side = channel == static_cast<std::int32_t>(Channel::direct) ? mesh_.direct : mesh_.collective;
    return side[static_cast<std::size_t>(peer)];
  }
  Hello my_hello(std::int32_t channel) const {
    return {.token = mesh_.token, .rank = mesh_.rank, .world = mesh_.world, .channel = channel};
  }
  bool valid(const Hello& hello) const {
    return hello.magic == Hello::kMagic && hello.version == Frame::kVersion && hello.token == mesh_.token &&
           hello.world == mesh_.world && (hello.channel == 0 || hello.channel == 1);
  }
  std::vector<int> unconnected() const;

  /** Somebody who has connected and not said all of its hello. */
  struct Guest {
    Fd fd;
    Hello hello;
    std::size_t got = 0;
  };

  PlainStore& store_;
  Mesh& mesh_;
  std::string address_;
  Deadline deadline_;
  Listener listener_;
  std::vector<Endpoint> endpoints_;
  std::list<Guest> guests_;
};

void Connector::exchange_addresses() {
  if (mesh_.rank == 0) {
    std::random_device random;
    const std::uint64_t token = (std::uint64_t{random()} << 32) | random();
    store_.set("tcp/token", fmt::format("{:016x}", token));
  }
  store_.set(key_of(mesh_.rank), fmt::format("{} {}", address_, listener_.port));
  std::vector<int> missing;
  for (int peer = 0; peer < mesh_.world; ++peer) {
    try {
      endpoints_.push_back(parse_endpoint(peer, store_.get(key_of(peer), deadline_)));
    } catch (const PeerError&) {
      throw;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout) throw;
      missing.push_back(peer);
    }
  }
  if (!missing.empty()) throw_missing(missing);
  if (!parse_number(store_.get("tcp/token", deadline_), mesh_.token, 16))
    throw PeerError(ErrorKind::lost, "tcp: rank 0 left no token", {0});
  mesh_.local_ranks = static_cast<int>(std::count_if(
      endpoints_.begin(), endpoints_.end(), [&](const auto& one) { return one.address == address_; }));
}

// Whoever answers at the address without the token is not the peer, so it is tried again until the deadline.
void Connector::reach(int peer, Channel channel) {
  const auto& endpoint = endpoints_[static_cast<std::size_t>(peer)];
  const Address to = parse_address(endpoint.address, endpoint.port);
  const auto number = static_cast<std::int32_t>(channel);
  while (true) {
    Fd fd = try_reach(to, my_hello(number), peer);
    if (fd.valid()) {
      place(peer, number) = std::move(fd);
      return;
    }
    if (deadline_.expired()) throw_missing({peer});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Fd Connector::try_reach(const Address& to, const Hello& hello, int peer) const {
  Fd fd = start_connect(address_, to);
  if (!fd.valid()) return {};
  pollfd wait{fd.get(), POLLOUT, 0};
  while (::poll(&wait, 1, std::min(deadline_.poll_ms(), kSliceMs)) <= 0) {
    if (deadline_.expired()) return {};
  }
  if (::send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return {};
  Hello answer;
  std::size_t got = 0;
  wait.events = POLLIN;
  while (got < sizeof answer) {
    if (::poll(&wait, 1, std::min(deadline_.poll_ms(), kSliceMs)) <= 0) {
      if (deadline_.expired()) return {};
      continue;
    }
    const auto more = ::recv(fd.get(), reinterpret_cast<char*>(&answer) + got, sizeof answer - got, 0);
    if (more == 0 || (more < 0 && errno != EAGAIN && errno != EINTR)) return {};
    got += more > 0 ? static_cast<std::size_t>(more) : 0;
  }
  if (!valid(answer) || answer.rank != peer || answer.channel != hello.channel) return {};
  tune(fd.get());
  return fd;
}

std::vector<int> Connector::unconnected() const {
  std::vector<int> ranks;
  for (int peer = mesh_.rank + 1; peer < mesh_.world; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (!mesh_.collective[at].valid() || !mesh_.direct[at].valid()) ranks.push_back(peer);
  }
  return ranks;
}

void Connector::accept_others() {
  while (true) {
    const auto missing = unconnected();
    if (missing.empty()) return;
    if (deadline_.expired()) throw_missing(missing);
    std::vector<pollfd> fds{{listener_.fd.get(), POLLIN, 0}};
    for (const auto& guest : guests_) fds.push_back({guest.fd.get(), POLLIN, 0});
    if (::poll(fds.data(), fds.size(), std::min(deadline_.poll_ms(), kSliceMs)) <= 0) continue;
    std::size_t at = 1;
    for (auto guest = guests_.begin(); guest != guests_.end(); ++at) {
      const bool done = fds[at].revents != 0 && listen_to(guest->fd.get(), guest->hello, guest->got);
      if (done && guest->got == sizeof(Hello))
        place(guest->hello.rank, guest->hello.channel) = std::move(guest->fd);
      guest = done ? guests_.erase(guest) : std::next(guest);
    }
    if (fds[0].revents != 0) accept_new();
  }
}

void Connector::accept_new() {
  // Strangers that connect and say nothing must not use up the descriptors.
  const std::size_t most = 2 * static_cast<std::size_t>(mesh_.world) + 64;
  while (true) {
    Fd fd = accept_next(listener_.fd);
    if (!fd.valid()) return;
    if (guests_.size() >= most) guests_.pop_front();
    guests_.push_back({std::move(fd), {}, 0});
  }
}

/** Whether this guest is dealt with: greeted (then all of its hello was read), or to be turned away. */
bool Connector::listen_to(int fd, Hello& hello, std::size_t& got) {
  const auto more = ::recv(fd, reinterpret_cast<char*>(&hello) + got, sizeof hello - got, 0);
  if (more < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (more > 0) got += static_cast<std::size_t>(more);
  if (more > 0 && got < sizeof hello) return false;
  const bool welcome = more > 0 && valid(hello) && hello.rank > mesh_.rank && hello.rank < mesh_.world;
  const Hello answer = my_hello(hello.channel);
  if (!welcome || ::send(fd, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) {
    log_debug("tcp: turned a connection away that is none of this group's");
    got = 0;
    return true;
  }
  tune(fd);
  return true;
}

}  // namespace

Mesh connect_mesh(PlainStore& store, int rank, int world, const std::string& bind_address,
                  Deadline deadline) {
  Mesh mesh{.rank = rank, .world = world, .collective = {}, .direct = {}};
  Connector(store, mesh, bind_address, deadline).run();
  return mesh;
}

}  // namespace dtorch::tcp
