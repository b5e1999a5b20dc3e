#include "core/comm/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/base/fd.h"
#include "core/base/log.h"

namespace dtorch {
namespace {

std::string numeric(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

bool loopback_literal(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

struct Interface {
  std::string name;
  std::string address;
  int family;
};

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw Error(ErrorKind::os_resource, errno_text("getifaddrs", errno));
  std::vector<Interface> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const std::string address = numeric(entry->ifa_addr, length);
    // A link-local IPv6 address needs a scope, which the published addresses do not carry.
    if (!address.empty() && address.find('%') == std::string::npos)
      found.push_back({entry->ifa_name, address, family});
  }
  ::freeifaddrs(list);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.family < b.family; });
  return found;
}

std::string address_of(const std::string& wanted) {
  const auto all = interfaces();
  std::vector<std::string> known;
  for (const auto& one : all) {
    if (one.name == wanted || one.address == wanted) return one.address;
    if (wanted.starts_with("127.") && loopback_literal(one.address)) return wanted;
    known.push_back(one.name + " (" + one.address + ")");
  }
  throw Error(ErrorKind::spec, fmt::format("no network interface or address '{}' on this machine", wanted),
              fmt::format("it has {}", fmt::join(known, ", ")));
}

// Two network namespaces share the boot id, two machines may share the namespace's number: both together tell
// hosts apart.
std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 64> name{};
  const auto length = ::readlink("/proc/self/ns/net", name.data(), name.size());
  return boot + "/" + std::string(name.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
}

std::string master_of(const StorePtr& store) {
  auto inner = store;
  while (auto* prefix = dynamic_cast<c10d::PrefixStore*>(inner.get())) inner = prefix->getUnderlyingStore();
  const auto* tcp = dynamic_cast<const c10d::TCPStore*>(inner.get());
  return tcp != nullptr ? tcp->getHost() : std::string();
}

/** The local address from which packets to `host` would leave; empty if unknown. */
std::string route_to(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  std::string address;
  for (const addrinfo* one = found; one != nullptr && address.empty(); one = one->ai_next) {
    const Fd socket(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    auto* name = reinterpret_cast<sockaddr*>(&local);
    if (socket.valid() && ::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), name, &length) == 0) {
      address = numeric(name, length);
    }
  }
  ::freeaddrinfo(found);
  return address;
}

std::string outward_address(const std::string& master) {
  std::string routed = route_to(master);
  if (!routed.empty() && !loopback_literal(routed)) return routed;
  for (const auto& one : interfaces()) {
    if (!loopback_literal(one.address)) return one.address;
  }
  throw Error(ErrorKind::os_resource,
              "the job spans several hosts but this machine has no address besides loopback",
              "bring a network interface up, or run all ranks on one host");
}

}  // namespace

std::vector<std::string> gather_keys(const StorePtr& store, const std::string& prefix, int world_size,
                                     Deadline deadline) {
  std::vector<std::string> values(static_cast<std::size_t>(world_size));
  std::vector<int> missing;
  for (int rank = 0; rank < world_size; ++rank) missing.push_back(rank);
  auto pause = std::chrono::microseconds(200);
  while (true) {
    std::erase_if(missing, [&](int rank) {
      const std::string key = prefix + "/" + std::to_string(rank);
      if (!store->check({key})) return false;
      values[static_cast<std::size_t>(rank)] = store->get_to_str(key);
      return true;
    });
    if (missing.empty()) return values;
    if (deadline.expired()) {
      throw PeerError(ErrorKind::timeout,
                      fmt::format("rank {} did not come to connect in time", fmt::join(missing, ", ")),
                      missing);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(20'000));
  }
}

std::string choose_address(const StorePtr& store, int rank, int world_size, const std::string& wanted,
                           Deadline deadline) {
  store->set("host/" + std::to_string(rank), host_identity());
  const auto hosts = gather_keys(store, "host", world_size, deadline);
  if (!wanted.empty()) return address_of(wanted);
  if (std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host == hosts.front(); })) {
    return "127.0.0.1";
  }
  std::string address = outward_address(master_of(store));
  log_debug(fmt::format("rank {} uses the address {}", rank, address));
  return address;
}

}  // namespace dtorch
