#include "core/comm/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/address.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/comm/named_store.h"

namespace dtorch {
namespace {

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
    const std::string address = numeric_host(entry->ifa_addr, length);
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
    if (wanted.starts_with("127.") && is_loopback(one.address)) return wanted;
    known.push_back(one.name + " (" + one.address + ")");
  }
  throw Error(ErrorKind::spec, fmt::format("no network interface or address '{}' on this machine", wanted),
              fmt::format("it has {}", fmt::join(known, ", ")));
}

std::string first_outward_address() {
  for (const auto& one : interfaces()) {
    if (!is_loopback(one.address)) return one.address;
  }
  throw Error(ErrorKind::os_resource,
              "the job spans several hosts but this machine has no address besides loopback",
              "bring a network interface up, or run all ranks on one host");
}

/** A way out that others can come back: empty where it leads to `host` over loopback, or not at all. */
std::string outward_route(const std::string& host) {
  std::string routed = route_to(host);
  return routed.find('%') != std::string::npos || (!routed.empty() && is_loopback(routed)) ? std::string()
                                                                                           : routed;
}

/**
 * The address that routes to the store's master. On the master's own machine that is loopback: there it is the one that
 * routes to the first rank elsewhere.
 */
std::string outward_address(const StorePtr& store, int rank, const std::vector<std::string>& hosts,
                            Deadline deadline) {
  const std::string master = store_host(store);
  std::string address = outward_route(master);
  store->set("route/" + std::to_string(rank), address);
  std::string towards = "the master " + master;
  if (address.empty()) {
    const auto routes = gather_keys(store, "route", static_cast<int>(hosts.size()), deadline);
    for (std::size_t other = 0; other < routes.size() && address.empty(); ++other) {
      if (hosts[other] == hosts[static_cast<std::size_t>(rank)] || routes[other].empty()) continue;
      address = outward_route(routes[other]);
      towards = fmt::format("rank {} at {}", other, routes[other]);
    }
  }
  if (address.empty()) {
    address = first_outward_address();
    towards = "other hosts, the first that is not loopback";
  }
  log_info(fmt::format("rank {} uses the address {}, the way to {}", rank, address, towards));
  return address;
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
  store->set("host/" + std::to_string(rank), locality());
  const auto hosts = gather_keys(store, "host", world_size, deadline);
  if (!wanted.empty()) return address_of(wanted);
  if (std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host == hosts.front(); })) {
    return "127.0.0.1";
  }
  return outward_address(store, rank, hosts, deadline);
}

}  // namespace dtorch
