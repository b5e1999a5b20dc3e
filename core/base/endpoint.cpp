#include "core/base/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "core/base/error.h"
#include "core/base/nearest.h"

namespace dtorch {
namespace {

constexpr std::array<std::string_view, 4> kSchemes{"tcp", "file", "shared_filesystem",
                                                   "env"};  // as InitScheme
constexpr std::string_view kQueryForm = "expected ?rank=R&world_size=W";
constexpr std::size_t kLongest = 4096;
constexpr int kMaxRanks = 1'000'000;

/** Who is to blame for what: errors begin with `subject`. */
struct Complaint {
  ErrorKind kind;
  std::string subject;
  std::string form;  ///< help: how it is written

  [[noreturn]] void say(std::string_view text) const {
    throw Error(kind, fmt::format("{}{}", subject, text), form);
  }
  [[noreturn]] void say(std::string_view text, std::string help) const {
    throw Error(kind, fmt::format("{}{}", subject, text), std::move(help));
  }
};

std::optional<int> parse_number(std::string_view text, int low, int high) {
  int value = 0;
  const auto* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < low || value > high) return std::nullopt;
  return value;
}

bool is_host_name(std::string_view host) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_'; };
  return host.size() <= 253 && std::all_of(host.begin(), host.end(), fits);
}

bool is_ipv6(std::string_view host) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &address) == 1;
}

Endpoint parse_host_port(std::string_view rest, const Complaint& complaint) {
  if (rest.ends_with('/')) rest.remove_suffix(1);
  Endpoint endpoint;
  std::string_view port;
  if (rest.starts_with('[')) {
    const auto close = rest.find(']');
    if (close == std::string_view::npos) complaint.say(": the '[' of an IPv6 address has no ']'");
    endpoint.host = rest.substr(1, close - 1);
    if (!is_ipv6(endpoint.host)) complaint.say(fmt::format(": '{}' is not an IPv6 address", endpoint.host));
    port = rest.substr(close + 1);
  } else {
    if (std::count(rest.begin(), rest.end(), ':') > 1) complaint.say(": an IPv6 address stands in brackets");
    const auto colon = std::min(rest.find(':'), rest.size());
    endpoint.host = rest.substr(0, colon);
    if (endpoint.host.empty()) complaint.say(" has no host");
    if (!is_host_name(endpoint.host)) complaint.say(fmt::format(": '{}' is not a host name", endpoint.host));
    port = rest.substr(colon);
  }
  if (!port.starts_with(':') || port.size() == 1) complaint.say(" has no port");
  port.remove_prefix(1);
  const auto number = parse_number(port, 0, 65'535);
  if (!number)
    complaint.say(fmt::format(": '{}' is not a port", port), "a port is 0 (any free one) to 65535");
  endpoint.port = *number;
  return endpoint;
}

std::string parse_path(std::string_view scheme, std::string_view rest, Complaint complaint) {
  complaint.form = fmt::format("for example {}:///{}", scheme, scheme == "file" ? "tmp/job" : "nfs/job");
  while (rest.size() > 1 && rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty() || rest == "/") complaint.say(fmt::format(": {}:// needs an absolute path", scheme));
  if (!rest.starts_with('/')) {
    complaint.say(fmt::format(": the path '{}' is not absolute", rest),
                  fmt::format("three slashes: {}:///{}", scheme, rest));
  }
  return std::string(rest);
}

void parse_query(std::string_view query, Complaint complaint, InitUrl& url) {
  complaint.form = kQueryForm;
  while (!query.empty()) {
    const auto item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), item.size() + 1));
    const auto name = item.substr(0, item.find('='));
    const auto value = item.size() > name.size() ? item.substr(name.size() + 1) : std::string_view();
    if (name != "rank" && name != "world_size") complaint.say(fmt::format(": unknown parameter '{}'", name));
    auto& target = name == "rank" ? url.rank : url.world_size;
    if (target) complaint.say(fmt::format(": '{}' is given twice", name));
    target = parse_number(value, name == "rank" ? 0 : 1, kMaxRanks);
    if (!target) complaint.say(fmt::format(": {}='{}' is not a number of ranks", name, value));
  }
  if (url.rank && url.world_size && *url.rank >= *url.world_size) {
    complaint.say(fmt::format(": rank {} is not below world_size {}", *url.rank, *url.world_size),
                  "ranks go from 0 to world_size - 1");
  }
}

void check_text(std::string_view text, const Complaint& complaint) {
  if (text.size() > kLongest) complaint.say(" is too long");
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (std::any_of(text.begin(), text.end(), control)) complaint.say(" holds a control character");
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  return endpoint.host.find(':') == std::string::npos ? fmt::format("{}:{}", endpoint.host, endpoint.port)
                                                      : fmt::format("[{}]:{}", endpoint.host, endpoint.port);
}

Endpoint parse_endpoint(std::string_view text) {
  constexpr std::string_view kForm = "write HOST:PORT or tcp://HOST:PORT, an IPv6 address in brackets";
  check_text(text, {ErrorKind::usage, "the endpoint", std::string(kForm)});
  const Complaint complaint{ErrorKind::usage, fmt::format("'{}'", text), std::string(kForm)};
  const auto scheme = text.find("://");
  if (scheme != std::string_view::npos && text.substr(0, scheme) != "tcp")
    complaint.say(fmt::format(": '{}' is not tcp", text.substr(0, scheme)));
  std::string_view rest = text.substr(text.starts_with("tcp://") ? 6 : 0);
  rest = rest.substr(0, rest.find('?'));
  return parse_host_port(rest, complaint);
}

InitUrl parse_init_url(std::string_view text) {
  const Complaint complaint{ErrorKind::spec, "init_method",
                            "write tcp://HOST:PORT, file:///FILE, shared_filesystem:///FOLDER or env://"};
  check_text(text, complaint);
  const auto separator = text.find("://");
  if (separator == std::string_view::npos) complaint.say(fmt::format(" '{}' is not a URL", text));
  const auto scheme = text.substr(0, separator);
  std::string_view rest = text.substr(separator + 3);
  const auto question = std::min(rest.find('?'), rest.size());
  const std::string_view query = rest.substr(std::min(question + 1, rest.size()));
  rest = rest.substr(0, question);
  const auto* known = std::find(kSchemes.begin(), kSchemes.end(), scheme);
  if (known == kSchemes.end()) {
    const std::string_view near = nearest(scheme, kSchemes);
    complaint.say(fmt::format(": unknown scheme '{}'", scheme),
                  near.empty() ? "known: tcp://, file://, shared_filesystem://, env://"
                               : fmt::format("did you mean '{}://'?", near));
  }
  InitUrl url;
  url.scheme = static_cast<InitScheme>(known - kSchemes.begin());
  if (url.scheme == InitScheme::tcp) {
    url.endpoint = parse_host_port(
        rest, {ErrorKind::spec, "init_method",
               "write tcp://HOST:PORT, for example tcp://127.0.0.1:29500 or tcp://[::1]:29500"});
  } else if (url.scheme != InitScheme::env) {
    url.path = parse_path(scheme, rest, complaint);
  } else if (!rest.empty()) {
    complaint.say(": nothing stands after env://", "the address comes from MASTER_ADDR and MASTER_PORT");
  }
  parse_query(query, complaint, url);
  return url;
}

}  // namespace dtorch
