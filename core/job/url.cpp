#include "core/job/url.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/job/source.h"
#include "core/job/suggest.h"

namespace dtorch::job {
namespace {

constexpr std::array<std::string_view, 4> kSchemes{"tcp", "file", "shared_filesystem", "env"};
constexpr std::string_view kTcpForm =
    "write tcp://HOST:PORT, for example tcp://127.0.0.1:29500 or tcp://[::1]:29500";

InitMethod wrong(std::string problem, std::string help) {
  InitMethod method;
  method.problem = std::move(problem);
  method.help = std::move(help);
  return method;
}

bool is_host_name(std::string_view host) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_'; };
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), fits);
}

bool is_ipv6(std::string_view host) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &address) == 1;
}

InitMethod parse_tcp(std::string_view rest) {
  InitMethod method;
  std::string_view port;
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos)
      return wrong("init_method: the '[' of an IPv6 address has no ']'", std::string(kTcpForm));
    method.host = rest.substr(1, end - 1);
    if (!is_ipv6(method.host))
      return wrong(fmt::format("init_method: '{}' is not an IPv6 address", shown(method.host)),
                   std::string(kTcpForm));
    port = rest.substr(end + 1);
    if (!port.starts_with(':')) return wrong("init_method has no port", std::string(kTcpForm));
    port.remove_prefix(1);
  } else {
    const std::size_t colon = rest.find(':');
    if (std::count(rest.begin(), rest.end(), ':') > 1) {
      return wrong("init_method: an IPv6 address stands in brackets", std::string(kTcpForm));
    }
    method.host = rest.substr(0, colon);
    if (method.host.empty()) return wrong("init_method has no host", std::string(kTcpForm));
    if (!is_host_name(method.host))
      return wrong(fmt::format("init_method: '{}' is not a host name", shown(method.host)),
                   std::string(kTcpForm));
    if (colon == std::string_view::npos) return wrong("init_method has no port", std::string(kTcpForm));
    port = rest.substr(colon + 1);
  }
  if (port.empty()) return wrong("init_method has no port", std::string(kTcpForm));
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), method.port);
  if (error != std::errc{} || end != port.data() + port.size() || method.port < 0 || method.port > 65535) {
    return wrong(fmt::format("init_method: '{}' is not a port", shown(port)),
                 "a port is 0 (any free one) to 65535");
  }
  return method;
}

InitMethod parse_path(std::string_view scheme, std::string_view rest, std::string_view example) {
  if (rest.empty() || rest == "/") {
    return wrong(fmt::format("init_method: {}:// needs an absolute path", scheme),
                 fmt::format("for example {}", example));
  }
  if (!rest.starts_with('/')) {
    return wrong(fmt::format("init_method: the path '{}' is not absolute", shown(rest)),
                 fmt::format("three slashes: {}:///{}", scheme, shown(rest)));
  }
  InitMethod method;
  method.path = rest;
  return method;
}

}  // namespace

InitMethod parse_init_method(std::string_view url) {
  const std::size_t colon = url.find("://");
  if (colon == std::string_view::npos) {
    return wrong(fmt::format("init_method '{}' is not a URL", shown(url)),
                 "write tcp://HOST:PORT, file:///FILE, shared_filesystem:///FOLDER or env://");
  }
  const std::string_view scheme = url.substr(0, colon);
  std::string_view rest = url.substr(colon + 3);
  rest = rest.substr(0, rest.find('?'));
  InitMethod method;
  if (scheme == "tcp") {
    method = parse_tcp(rest);
  } else if (scheme == "file") {
    method = parse_path(scheme, rest, "file:///tmp/job");
  } else if (scheme == "shared_filesystem") {
    method = parse_path(scheme, rest, "shared_filesystem:///nfs/job");
  } else if (scheme == "env") {
    if (!rest.empty())
      return wrong("init_method: nothing stands after env://",
                   "the address comes from MASTER_ADDR and MASTER_PORT");
  } else {
    const std::string_view near = nearest(scheme, kSchemes);
    return wrong(fmt::format("init_method: unknown scheme '{}'", shown(scheme)),
                 near.empty() ? "known: tcp://, file://, shared_filesystem://, env://"
                              : fmt::format("did you mean '{}://'?", near));
  }
  method.scheme = scheme;
  return method;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && std::count(host.begin(), host.end(), '.') == 3);
}

}  // namespace dtorch::job
