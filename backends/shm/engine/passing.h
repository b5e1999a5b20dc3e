// Messages with file descriptors over the Unix sockets between rank 0 and the others.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/fd.h"

namespace dtorch::shm {

/** Socket names of the kernel's own space: no file, gone with the socket. Throw Error(os_resource). */
Fd listen_at(const std::string& name);
/** An invalid one if nobody listens there. */
Fd connect_to(const std::string& name, Deadline deadline);
/** The next connection; an invalid one if none has come by the deadline. */
Fd accept_from(const Fd& listener, Deadline deadline);
/** Whether the other end belongs to this process's user. */
bool is_same_user(const Fd& socket);

/** A message's bytes. */
template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/** False when the other end is gone. */
bool send_message(const Fd& socket, std::span<const std::byte> message, std::span<const int> fds = {});

enum class Received { whole, late, gone };
/** Exactly one message of the given size, with at most `most` descriptors. */
Received receive_message(const Fd& socket, std::span<std::byte> message, std::vector<Fd>& fds,
                         std::size_t most, Deadline deadline);

}  // namespace dtorch::shm
