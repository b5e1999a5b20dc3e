#include "core/comm/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/base/error.h"

namespace dtorch {
namespace {

constexpr std::array<std::pair<std::string_view, InitScheme>, 4> kSchemes{{
    {"tcp", InitScheme::tcp},
    {"file", InitScheme::file},
    {"shared_filesystem", InitScheme::shared_filesystem},
    {"env", InitScheme::env},
}};

constexpr int kMaxRanks = 1'000'000;

[[noreturn]] void malformed(std::string_view text, std::string_view why, std::string_view expected) {
  throw Error(ErrorKind::spec, fmt::format("init_method '{}': {}", text, why),
              fmt::format("expected {}", expected));
}

std::optional<int> parse_number(std::string_view text, int low, int high) {
  int value = 0;
  const auto* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < low || value > high) return std::nullopt;
  return value;
}

void parse_query(std::string_view text, std::string_view query, InitUrl& url) {
  while (!query.empty()) {
    const auto item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), item.size() + 1));
    const auto name = item.substr(0, item.find('='));
    const auto value = item.size() > name.size() ? item.substr(name.size() + 1) : std::string_view();
    if (name != "rank" && name != "world_size") {
      malformed(text, fmt::format("unknown parameter '{}'", name), "?rank=R&world_size=W");
    }
    auto& target = name == "rank" ? url.rank : url.world_size;
    if (target) malformed(text, fmt::format("'{}' is given twice", name), "?rank=R&world_size=W");
    target = parse_number(value, name == "rank" ? 0 : 1, kMaxRanks);
    if (!target) {
      malformed(text, fmt::format("{}='{}' is not a number of ranks", name, value), "?rank=R&world_size=W");
    }
  }
  if (url.rank && url.world_size && *url.rank >= *url.world_size) {
    malformed(text, fmt::format("rank {} is not below world_size {}", *url.rank, *url.world_size),
              "ranks from 0 to world_size - 1");
  }
}

void parse_endpoint(std::string_view text, std::string_view rest, InitUrl& url) {
  constexpr std::string_view kExpected = "tcp://host:port or tcp://[IPv6 address]:port";
  std::string_view port;
  if (rest.starts_with('[')) {
    const auto close = rest.find(']');
    if (close == std::string_view::npos) malformed(text, "the bracket is not closed", kExpected);
    url.host = rest.substr(1, close - 1);
    port = rest.substr(close + 1);
    if (url.host.find(':') == std::string::npos)
      malformed(text, "no IPv6 address in the brackets", kExpected);
    if (!port.starts_with(':')) malformed(text, "the port is missing", kExpected);
  } else {
    const auto colon = rest.find(':');
    url.host = rest.substr(0, colon);
    if (colon == std::string_view::npos) malformed(text, "the port is missing", kExpected);
    port = rest.substr(colon);
    if (port.find(':', 1) != std::string_view::npos) {
      malformed(text, "an IPv6 address needs brackets", kExpected);
    }
  }
  port.remove_prefix(1);
  if (url.host.empty()) malformed(text, "the host is missing", kExpected);
  if (url.host.find_first_of("/@ \t") != std::string::npos) {
    malformed(text, fmt::format("'{}' is not a host", url.host), kExpected);
  }
  if (port.ends_with('/')) port.remove_suffix(1);
  const auto number = parse_number(port, 0, 65'535);
  if (!number) malformed(text, fmt::format("'{}' is not a port from 0 to 65535", port), kExpected);
  url.port = *number;
}

void parse_path(std::string_view text, std::string_view scheme, std::string_view rest, InitUrl& url) {
  const auto expected = fmt::format("{}:///absolute/path, with three slashes", scheme);
  if (!rest.starts_with('/')) malformed(text, "the path is not absolute", expected);
  while (rest.size() > 1 && rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.size() < 2) malformed(text, "the path is missing", expected);
  if (rest.find('\0') != std::string_view::npos) malformed(text, "the path holds a zero byte", expected);
  url.path = rest;
}

}  // namespace

InitUrl parse_init_url(std::string_view text) {
  constexpr std::string_view kExpected = "tcp://host:port, file:///path, shared_filesystem:///dir or env://";
  const auto separator = text.find("://");
  if (separator == std::string_view::npos) malformed(text, "there is no '://'", kExpected);
  const auto scheme = text.substr(0, separator);
  const auto question = text.find('?', separator);
  const auto rest =
      text.substr(separator + 3, question == std::string_view::npos ? question : question - separator - 3);
  InitUrl url;
  const auto* known =
      std::find_if(kSchemes.begin(), kSchemes.end(), [&](const auto& s) { return s.first == scheme; });
  if (known == kSchemes.end()) malformed(text, fmt::format("unknown scheme '{}'", scheme), kExpected);
  url.scheme = known->second;
  if (url.scheme == InitScheme::tcp) {
    parse_endpoint(text, rest, url);
  } else if (url.scheme != InitScheme::env) {
    parse_path(text, scheme, rest, url);
  } else if (!rest.empty()) {
    malformed(text, fmt::format("'{}' after env://", rest),
              "env:// alone: the address comes from MASTER_ADDR and MASTER_PORT");
  }
  if (question != std::string_view::npos) parse_query(text, text.substr(question + 1), url);
  return url;
}

std::string endpoint_text(std::string_view host, int port) {
  return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port)
                                                  : fmt::format("[{}]:{}", host, port);
}

}  // namespace dtorch
