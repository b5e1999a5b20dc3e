#include "core/comm/hostlist.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "core/base/error.h"

namespace dtorch {
namespace {

constexpr std::size_t kMaxHosts = 65'536;
constexpr std::size_t kMaxDigits = 9;

[[noreturn]] void malformed(std::string_view list, std::string_view why) {
  throw Error(ErrorKind::spec, fmt::format("host list '{}' is malformed: {}", list, why),
              "expected names like node[03-05,9],gpu1");
}

std::uint32_t number(std::string_view digits, std::string_view list) {
  std::uint32_t value = 0;
  const auto* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value);
  if (digits.empty() || digits.size() > kMaxDigits || result.ec != std::errc() || result.ptr != end) {
    malformed(list, fmt::format("'{}' is not a number", digits));
  }
  return value;
}

/** Splits at commas outside brackets. */
std::vector<std::string_view> split(std::string_view text, std::string_view list) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !inside)) {
      if (i == start) malformed(list, "an empty name");
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      if (inside == (text[i] == '[')) malformed(list, "brackets do not match");
      inside = !inside;
    }
  }
  if (inside) malformed(list, "brackets do not match");
  return parts;
}

/** "03-05,9" → 03 04 05 9 */
std::vector<std::string> expand_numbers(std::string_view inside, std::string_view list) {
  std::vector<std::string> numbers;
  for (const auto part : split(inside, list)) {
    const auto dash = part.find('-');
    const auto low_text = part.substr(0, dash);
    const auto low = number(low_text, list);
    const auto high = dash == std::string_view::npos ? low : number(part.substr(dash + 1), list);
    if (high < low || high - low >= kMaxHosts) malformed(list, fmt::format("'{}' is not a range", part));
    for (auto n = low; n <= high; ++n) numbers.push_back(fmt::format("{:0{}}", n, low_text.size()));
  }
  return numbers;
}

std::vector<std::string> expand_name(std::string_view name, std::string_view list) {
  std::vector<std::string> hosts{""};
  while (!name.empty()) {
    const auto open = name.find('[');
    for (auto& host : hosts) host += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = name.find(']', open);
    const auto numbers = expand_numbers(name.substr(open + 1, close - open - 1), list);
    if (hosts.size() * numbers.size() > kMaxHosts) malformed(list, "more than 65,536 hosts");
    std::vector<std::string> longer;
    longer.reserve(hosts.size() * numbers.size());
    for (const auto& host : hosts) {
      for (const auto& n : numbers) longer.push_back(host + n);
    }
    hosts = std::move(longer);
    name.remove_prefix(close + 1);
  }
  return hosts;
}

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list) {
  std::vector<std::string> hosts;
  for (const auto name : split(list, list)) {
    auto more = expand_name(name, list);
    if (hosts.size() + more.size() > kMaxHosts) malformed(list, "more than 65,536 hosts");
    hosts.insert(hosts.end(), more.begin(), more.end());
  }
  return hosts;
}

}  // namespace dtorch
