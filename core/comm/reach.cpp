#include "core/comm/reach.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/base/address.h"
#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/base/log.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;

/** 0, or the errno value of the failed connect. */
int try_connect(const addrinfo& address, Deadline deadline) {
  const Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!fd.valid()) return errno;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd wait{fd.get(), POLLOUT, 0};
  int ready = 0;
  do {
    ready = ::poll(&wait, 1, deadline.poll_ms());
  } while ((ready < 0 && errno == EINTR) || (ready == 0 && !deadline.expired()));
  if (ready <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

std::string describe(int error) {
  switch (error) {
    case ECONNREFUSED: return "connection refused (nothing listens there)";
    case ETIMEDOUT: return "no answer (connection timed out)";
    default: return std::strerror(error);
  }
}

constexpr auto kFirstRetry = 5ms;
constexpr auto kLongestRetry = 250ms;
constexpr auto kOneAttempt = 5s;
constexpr auto kProgressEvery = 3s;

}  // namespace

std::string reach(const Endpoint& endpoint, Deadline deadline) {
  const auto& [host, port] = endpoint;
  std::string last = "not tried";
  std::chrono::milliseconds pause = kFirstRetry;
  auto next_progress = Clock::now() + kProgressEvery;
  while (true) {
    LookupFailure failure;
    const auto list = resolve(host, port, 0, failure);
    if (!list) last = fmt::format("name not found ({})", failure.reason);
    for (const auto* at = list.get(); at != nullptr; at = at->ai_next) {
      const Deadline attempt(std::min(deadline.at(), Clock::now() + kOneAttempt));
      const int error = try_connect(*at, attempt);
      auto address = numeric_host(at->ai_addr, at->ai_addrlen);
      if (error == 0) return address;
      last = describe(error);
      if (address != host) last = fmt::format("{}: {}", address, last);
    }
    if (deadline.remaining() <= pause) break;
    if (Clock::now() >= next_progress) {
      log_info(fmt::format("waiting for the store at {}: {}", to_string(endpoint), last));
      next_progress += kProgressEvery;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::milliseconds>(pause * 2, kLongestRetry);
  }
  std::string help = "is rank 0 (or the launcher) running there, and does a firewall let the port through?";
  if (leads_to_loopback(host)) {
    help = fmt::format(
        "'{}' is always this machine itself: where rank 0 runs on another one, give its name or address",
        host);
  }
  throw Error(ErrorKind::timeout,
              fmt::format("no store could be reached at {}: {}", to_string(endpoint), last), help);
}

void limit_silence(int port, std::chrono::milliseconds limit) {
  const timeval wait{limit.count() / 1000, (limit.count() % 1000) * 1000};
  const auto unacknowledged = static_cast<unsigned int>(limit.count());
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (port_of(peer) != port) continue;
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof(unacknowledged));
  }
}

}  // namespace dtorch
