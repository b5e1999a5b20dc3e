#include "backends/shm/engine/allocation.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "backends/shm/engine/passing.h"
#include "core/bytes/peer_error.h"

namespace dtorch::shm {
namespace {

struct Request {
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
};
enum class Answer : std::uint64_t { given, no_memory, sizes_differ };
struct Reply {
  std::uint64_t id = 0;
  Answer answer = Answer::given;
};

template <typename T>
T receive(const Fd& socket, int peer, std::vector<Fd>& fds, Deadline deadline) {
  T message;
  const auto received = receive_message(socket, bytes_of(message), fds, 1, deadline);
  if (received == Received::late)
    throw PeerError(ErrorKind::timeout, fmt::format("rank {} did not come to allocate shared memory", peer),
                    {peer});
  if (received == Received::gone)
    throw PeerError(ErrorKind::lost, fmt::format("rank {} is gone while shared memory was allocated", peer),
                    {peer});
  return message;
}

PeerError differ(std::vector<int> ranks) {
  return {ErrorKind::disagree, "ranks allocate shared memory of different sizes", std::move(ranks)};
}

Fd give(std::span<const Fd> sockets, std::uint32_t id, std::size_t bytes, Deadline deadline) {
  const int world = static_cast<int>(sockets.size());
  std::vector<int> others;
  for (int rank = 1; rank < world; ++rank) {
    std::vector<Fd> none;
    const auto request = receive<Request>(sockets[static_cast<std::size_t>(rank)], rank, none, deadline);
    if (request.id != id || request.bytes != bytes) others.push_back(rank);
  }
  Reply reply{id, others.empty() ? Answer::given : Answer::sizes_differ};
  Fd memory;
  std::optional<Error> failure;
  try {
    const std::size_t total = bytes * static_cast<std::size_t>(world);
    if (others.empty()) memory = create_memory(total, total);
  } catch (const Error& error) {
    reply.answer = Answer::no_memory;
    failure = error;
  }
  const int fd = memory.get();
  for (int rank = 1; rank < world; ++rank)
    send_message(sockets[static_cast<std::size_t>(rank)], bytes_of(reply), {&fd, memory.valid() ? 1U : 0U});
  if (failure) throw Error(*failure);
  if (!others.empty()) throw differ(others);
  return memory;
}

Fd ask(const Fd& socket, std::uint32_t id, std::size_t bytes, int world, Deadline deadline) {
  Request request{id, bytes};
  if (!send_message(socket, bytes_of(request))) throw PeerError(ErrorKind::lost, "rank 0 is gone", {0});
  std::vector<Fd> fds;
  const auto reply = receive<Reply>(socket, 0, fds, deadline);
  if (reply.answer == Answer::no_memory)
    throw Error(ErrorKind::os_resource,
                fmt::format("rank 0 finds no shared memory of {} bytes for {} ranks", bytes, world),
                "free memory, or raise the limit of the container");
  const bool fits = reply.id == id && fds.size() == 1 &&
                    is_memory_of(fds.front().get(), bytes * static_cast<std::size_t>(world));
  if (reply.answer != Answer::given || !fits) throw differ({0});
  return std::move(fds.front());
}

}  // namespace

std::shared_ptr<Region> share_region(std::span<const Fd> sockets, const Mapper& map, int rank,
                                     std::uint32_t id, std::size_t bytes, Deadline deadline) {
  const int world = static_cast<int>(sockets.size());
  const Fd memory =
      rank == 0 ? give(sockets, id, bytes, deadline) : ask(sockets[0], id, bytes, world, deadline);
  return std::make_shared<Region>(
      Region{id, rank, world, bytes, map(memory.get(), bytes * static_cast<std::size_t>(world))});
}

}  // namespace dtorch::shm
