#include "backends/shm/engine/bootstrap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <sstream>

#include "backends/shm/engine/engine.h"
#include "backends/shm/engine/memory.h"
#include "backends/shm/engine/passing.h"
#include "core/base/host.h"
#include "core/bytes/peer_error.h"

namespace dtorch::shm {
namespace {

constexpr std::uint64_t kMagic = 0x64746f7263683031;  // "dtorch01": this protocol and layout

using Token = std::array<char, 33>;

struct Hello {
  std::uint64_t magic = kMagic;
  std::int32_t rank = 0;
  std::int32_t world = 0;
  Token token{};
};
struct Welcome {
  std::uint64_t magic = kMagic;
  std::uint64_t bytes = 0;
};

Token random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw Error(ErrorKind::os_resource, errno_text("getrandom", errno));
  Token token{};
  for (std::size_t i = 0; i < bytes.size(); ++i) fmt::format_to_n(&token[2 * i], 2, "{:02x}", bytes[i]);
  return token;
}

std::string host_key(int rank) { return fmt::format("shm/host/{}", rank); }
constexpr const char* kHub = "shm/hub";

/** Throws unless all ranks have come and can share memory: the same error on every rank. */
void check_all_here(PlainStore& store, int rank, int world, Deadline deadline) {
  store.set(host_key(rank), locality() + " " + host_name());
  std::vector<int> missing;
  std::vector<std::string> hosts(static_cast<std::size_t>(world));
  for (int peer = 0; peer < world; ++peer) {
    try {
      hosts[static_cast<std::size_t>(peer)] = store.get(host_key(peer), deadline);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout) throw;
      missing.push_back(peer);
    }
  }
  if (!missing.empty()) {
    throw PeerError(ErrorKind::timeout,
                    fmt::format("shm: rank {} did not come to connect in time", fmt::join(missing, ", ")),
                    missing);
  }
  const auto place = [](const std::string& host) { return host.substr(0, host.find(' ')); };
  const auto name = [](const std::string& host) { return host.substr(host.find(' ') + 1); };
  for (int peer = 1; peer < world; ++peer) {
    const auto& theirs = hosts[static_cast<std::size_t>(peer)];
    if (place(theirs) == place(hosts[0])) continue;
    throw Error(
        ErrorKind::spec,
        fmt::format("shm: rank {} ({}) is not on the host of rank 0 ({}), or in another network namespace",
                    peer, name(theirs), name(hosts[0])),
        "shm serves ranks of one host; use auto, tcp or gloo across hosts");
  }
}

struct Pipe {
  Fd read;
  Fd write;
};

Pipe new_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(ErrorKind::os_resource, errno_text("pipe", errno),
                "raise the limit of open files (ulimit -n)");
  return {Fd(ends[0]), Fd(ends[1])};
}

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

/** Rank 0 takes every other rank's call. */
void greet_all(const Fd& listener, const Token& token, Connection& connection, Deadline deadline) {
  const int world = static_cast<int>(connection.sockets.size());
  for (int come = 1; come < world;) {
    Fd socket = accept_from(listener, deadline);
    if (!socket.valid()) {
      std::vector<int> missing;
      for (int rank = 1; rank < world; ++rank) {
        if (!connection.sockets[index(rank)].valid()) missing.push_back(rank);
      }
      throw PeerError(ErrorKind::timeout,
                      fmt::format("shm: rank {} did not connect to rank 0 in time", fmt::join(missing, ", ")),
                      missing);
    }
    Hello hello;
    std::vector<Fd> fds;
    if (!is_same_user(socket)) continue;
    if (receive_message(socket, bytes_of(hello), fds, 1, deadline) != Received::whole) continue;
    const bool known = hello.magic == kMagic && hello.token == token && hello.world == world &&
                       fds.size() == 1 && hello.rank > 0 && hello.rank < world &&
                       !connection.sockets[index(hello.rank)].valid();
    if (!known) continue;
    connection.sockets[index(hello.rank)] = std::move(socket);
    connection.lifelines[index(hello.rank)] = std::move(fds.front());
    ++come;
  }
}

Connection be_hub(PlainStore& store, int world, std::size_t bytes, std::size_t reserved, Deadline deadline) {
  Connection connection;
  connection.sockets.resize(index(world));
  connection.lifelines.resize(index(world));
  Pipe life = new_pipe();
  connection.own_end = std::move(life.write);
  try {
    connection.memory = create_memory(bytes, reserved);
  } catch (const Error& error) {
    store.set(kHub, std::string("?") + error.what());  // nobody need wait for what will not come
    throw;
  }
  const Token token = random_token();
  const std::string name = fmt::format("dtorch-{}", random_token().data());
  const Fd listener = listen_at(name);
  store.set(kHub, fmt::format("{} {}", name, token.data()));
  greet_all(listener, token, connection, deadline);

  std::vector<int> fds{connection.memory.get(), life.read.get()};
  for (int rank = 1; rank < world; ++rank) fds.push_back(connection.lifelines[index(rank)].get());
  Welcome welcome{kMagic, bytes};
  for (int rank = 1; rank < world; ++rank) {
    if (!send_message(connection.sockets[index(rank)], bytes_of(welcome), fds))
      throw PeerError(ErrorKind::lost, fmt::format("rank {} went away while connecting", rank), {rank});
  }
  return connection;
}

Connection be_spoke(PlainStore& store, int rank, int world, std::size_t bytes, Deadline deadline) {
  const std::string hub = store.get(kHub, deadline);
  if (hub.starts_with('?')) throw Error(ErrorKind::os_resource, "rank 0 has " + hub.substr(1));
  std::istringstream words(hub);
  std::string name;
  std::string secret;
  words >> name >> secret;

  Connection connection;
  connection.sockets.resize(index(world));
  Fd& socket = connection.sockets[0];
  socket = connect_to(name, deadline);
  if (!socket.valid() || !is_same_user(socket))
    throw PeerError(ErrorKind::lost, "rank 0 is gone, or not this user's", {0});
  Pipe life = new_pipe();
  connection.own_end = std::move(life.write);
  Hello hello{kMagic, rank, world, {}};
  secret.copy(hello.token.data(), hello.token.size() - 1);
  const int end = life.read.get();
  Welcome welcome;
  auto received = Received::gone;
  if (send_message(socket, bytes_of(hello), {&end, 1}))
    received = receive_message(socket, bytes_of(welcome), connection.lifelines, index(world) + 1, deadline);
  if (received == Received::late)
    throw PeerError(ErrorKind::timeout, "rank 0 waits for other ranks to connect to shared memory", {0});
  if (received == Received::gone) throw PeerError(ErrorKind::lost, "rank 0 went away while connecting", {0});
  if (welcome.magic != kMagic || welcome.bytes != bytes || connection.lifelines.size() != index(world) + 1 ||
      !is_memory_of(connection.lifelines.front().get(), bytes)) {
    throw PeerError(ErrorKind::disagree, "rank 0 shares memory in another way: another version of dtorch?",
                    {0});
  }
  connection.memory = std::move(connection.lifelines.front());
  connection.lifelines.erase(connection.lifelines.begin());
  connection.lifelines[index(rank)].reset();
  return connection;
}

}  // namespace

Connection connect(PlainStore& store, int rank, int world, std::size_t bytes, std::size_t reserved,
                   Deadline deadline) {
  check_all_here(store, rank, world, deadline);
  if (rank == 0) return be_hub(store, world, bytes, reserved, deadline);
  return be_spoke(store, rank, world, bytes, deadline);
}

}  // namespace dtorch::shm
