#include "core/job/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/base/nearest.h"
#include "core/base/units.h"
#include "core/job/repair.h"

namespace dtorch::job {
namespace {

template <std::size_t N>
bool is_one_of(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::size_t skip_digits(std::string_view text, std::size_t i) {
  while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
  return i;
}

bool is_non_finite_text(std::string_view text) {
  constexpr std::array<std::string_view, 16> kWords{".inf", ".Inf",     ".INF", "inf", "Inf", "infinity",
                                                    ".nan", ".NaN",     ".NAN", "nan", "NaN", "NAN",
                                                    "INF",  "Infinity", "NINF", "PINF"};
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return is_one_of(text, kWords);
}

/** Without a '+', which from_chars does not take. */
std::string_view unsigned_plus(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  return text;
}

enum class Outcome { good, not_one, out_of_range };

template <typename Value>
Outcome read(std::string_view text, Value& value) {
  text = unsigned_plus(text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return Outcome::out_of_range;
  return error == std::errc{} && end == text.data() + text.size() ? Outcome::good : Outcome::not_one;
}

bool is_integer_text(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const bool leading_zero = text.size() > 1 && text[0] == '0';
  return !text.empty() && skip_digits(text, 0) == text.size() && !leading_zero;
}

/** Bounds in a range text (">= 1, <= 64", "> 0", "1"), read with PARSE; whether VALUE keeps them all. */
template <typename Value, typename Parse>
bool in_range(const Value& value, std::string_view range, const Parse& parse) {
  while (!range.empty()) {
    const std::size_t comma = range.find(", ");
    const std::string_view clause = range.substr(0, comma);
    range = comma == std::string_view::npos ? std::string_view{} : range.substr(comma + 2);
    const std::size_t space = clause.find(' ');
    const bool exact = space == std::string_view::npos;  // "1": that value and no other
    const std::string_view compare = exact ? "=" : clause.substr(0, space);
    const std::optional<Value> bound = parse(exact ? clause : clause.substr(space + 1));
    if (!bound) continue;
    const bool kept = compare == ">="   ? value >= *bound
                      : compare == "<=" ? value <= *bound
                      : compare == ">"  ? value > *bound
                                        : value == *bound;
    if (!kept) return false;
  }
  return true;
}

std::optional<double> number_bound(std::string_view text) {
  double value = 0;
  return read(text, value) == Outcome::good ? std::optional(value) : std::nullopt;
}
std::optional<std::int64_t> integer_bound(std::string_view text) {
  std::int64_t value = 0;
  return read(text, value) == Outcome::good ? std::optional(value) : std::nullopt;
}

/** Why a value that the design knows is not to be had yet; empty for one that nobody knows. */
std::string not_yet(const KeyInfo& key, const std::string& value) {
  const auto later = choices(key.later);
  const std::string small = lower(value);
  const bool cuda = key.path == "device" && (small.starts_with("cuda") || small == "gpu");
  const bool module =
      key.path == "backend" && (value.find('/') != std::string::npos || value.ends_with(".so"));
  if (cuda)
    return fmt::format("device '{}' is not available: this build has no CUDA device support yet",
                       shown(value));
  if (module)
    return fmt::format("backend modules ('{}') are not available yet in this version", shown(value));
  if (std::find(later.begin(), later.end(), small) == later.end()) return {};
  return fmt::format("{} '{}' is not available yet in this version", key.path, small);
}

/** Reads one node for one field: the pieces of assign(), which share what they complain to. */
class Reader {
 public:
  Reader(const Field& field, Problems& problems)
      : key_(field.key), name_(field.key.path), problems_(problems) {}

  std::optional<std::int64_t> integer(const Node& node) const {
    const bool plain = node.kind == Node::Kind::scalar && !node.quoted;
    if (!plain || !is_integer_text(node.text)) {
      std::string help;
      if (plain && is_number_text(node.text))
        help = "write a whole number, without fraction, exponent or leading zeros";
      wrong_type(node, "an integer", help);
      return std::nullopt;
    }
    std::int64_t value = 0;
    if (read(node.text, value) != Outcome::good || !in_range(value, key_.range, integer_bound)) {
      out_of_range(node);
      return std::nullopt;
    }
    return value;
  }

  std::optional<double> number(const Node& node) const {
    const bool plain = node.kind == Node::Kind::scalar && !node.quoted;
    if (plain && is_non_finite_text(node.text)) {
      problems_.add(node.place, fmt::format("'{}' must be a finite number, not {}", name_, node.text));
      return std::nullopt;
    }
    if (!plain || !is_number_text(node.text)) {
      wrong_type(node, "a number", {});
      return std::nullopt;
    }
    double value = 0;
    if (read(node.text, value) != Outcome::good || !in_range(value, key_.range, number_bound)) {
      out_of_range(node);
      return std::nullopt;
    }
    return value;
  }

  std::optional<bool> boolean(const Node& node) const {
    if (node.kind == Node::Kind::scalar && !node.quoted && is_bool_text(node.text)) {
      return node.text[0] == 't' || node.text[0] == 'T';
    }
    constexpr std::array<std::string_view, 8> kYes{"yes", "on", "Yes", "On", "YES", "ON", "y", "1"};
    constexpr std::array<std::string_view, 8> kNo{"no", "off", "No", "Off", "NO", "OFF", "n", "0"};
    std::string help;
    if (node.kind == Node::Kind::scalar && is_one_of(node.text, kYes)) help = "write true";
    if (node.kind == Node::Kind::scalar && is_one_of(node.text, kNo)) help = "write false";
    constexpr std::array<std::string_view, 2> kBoth{"true", "false"};
    const std::string_view near = nearest(node.text, kBoth);
    if (help.empty() && !near.empty() && !is_bool_text(node.text))
      help = fmt::format("did you mean '{}'?", near);
    wrong_type(node, "true or false", help);
    return std::nullopt;
  }

  std::optional<std::string> text(const Node& node) const {
    const bool scalar = node.kind == Node::Kind::scalar;
    const bool typed = scalar && !node.quoted && (is_bool_text(node.text) || is_number_text(node.text));
    if (!scalar || (typed && !node.interpolated)) {
      wrong_type(node, "text",
                 key_.type == KeyType::choice
                     ? fmt::format("available: {}", fmt::join(choices(key_.range), ", "))
                 : typed ? fmt::format("put it in quotes: '{}'", node.text)
                         : "");
      return std::nullopt;
    }
    // Escapes in double quotes can make what the file itself may not hold.
    if (std::any_of(node.text.begin(), node.text.end(),
                    [](unsigned char c) { return c < 0x20 || c == 0x7F; })) {
      problems_.add(node.place, fmt::format("'{}' has a line break or control character", name_));
      return std::nullopt;
    }
    return node.text;
  }

  std::optional<std::string> choice(const Node& node) const {
    std::optional<std::string> value = text(node);
    if (!value) return std::nullopt;
    const auto allowed = choices(key_.range);
    if (std::find(allowed.begin(), allowed.end(), *value) != allowed.end()) return value;
    if (value->empty() && key_.fallback == "''") return value;
    const std::string available = fmt::format("available: {}", fmt::join(allowed, ", "));
    if (std::string reason = not_yet(key_, *value); !reason.empty()) {
      problems_.add(node.place, std::move(reason), available);
      return std::nullopt;
    }
    const std::string_view near = nearest(*value, allowed);
    problems_.add(node.place, fmt::format("unknown {} '{}'", key_.path, shown(*value)),
                  near.empty() ? available : fmt::format("did you mean '{}'? ({})", near, available));
    return std::nullopt;
  }

  std::optional<std::chrono::milliseconds> duration(const Node& node) const {
    return with_unit<std::chrono::milliseconds>(node, parse_duration,
                                                "a duration such as 30s, 500ms, 2min or 1h", true);
  }
  std::optional<std::int64_t> bytes(const Node& node) const {
    return with_unit<std::int64_t>(node, parse_size, "a size such as 25MiB, 512KiB or 1GB", false);
  }

  /** Every item of a list, read with READ. */
  template <typename Value, typename Read>
  std::optional<std::vector<Value>> list(const Node& node, const char* what, const Read& read_item) {
    if (node.kind != Node::Kind::list) {
      wrong_type(node, what, node.kind == Node::Kind::scalar ? list_repair(node.text) : "");
      return std::nullopt;
    }
    std::vector<Value> values;
    bool good = true;
    for (const Node& item : node.items) {
      name_ = fmt::format("{}.{}", key_.path, &item - node.items.data());
      const auto value = item.broken ? std::nullopt : read_item(item);
      good = good && value.has_value();
      if (value) values.push_back(*value);
    }
    return good ? std::optional(values) : std::nullopt;
  }

  std::optional<NodesSpec::Host> host(const Node& node) const {
    const std::optional<std::string> value = text(node);
    if (!value) return std::nullopt;
    NodesSpec::Host host;
    if (parse_host(*value, host)) return host;
    problems_.add(node.place, fmt::format("'{}' is not a host", shown(*value)),
                  "write HOST or HOST:SLOTS with 1 to 65536 slots; an IPv6 address in brackets: '[::1]:2'");
    return std::nullopt;
  }

 private:
  void wrong_type(const Node& node, std::string_view expected, std::string help) const {
    if (help.empty() && node.kind == Node::Kind::scalar && node.quoted) {
      if (key_.type == KeyType::boolean ? is_bool_text(node.text) : is_number_text(node.text))
        help = "remove the quotes";
    }
    const bool words = key_.type == KeyType::text || key_.type == KeyType::choice;
    if (help.empty() && node.kind == Node::Kind::scalar && !words) help = strange_character(node.text);
    problems_.add(node.place, fmt::format("'{}' must be {}, not {}", name_, expected, describe(node)), help);
  }

  void out_of_range(const Node& node) const {
    problems_.add(node.place, fmt::format("'{}' must be {}, not {}", name_, key_.range, shown(node.text)));
  }

  template <typename Value, typename Parse>
  std::optional<Value> with_unit(const Node& node, const Parse& parse, std::string_view expected,
                                 bool time) const {
    const std::optional<Value> value = node.kind == Node::Kind::scalar ? parse(node.text) : std::nullopt;
    const std::string repair = value || node.kind != Node::Kind::scalar ? "" : unit_repair(node.text, time);
    // Written as it should be, and yet no value: larger than any, or a fraction of the smallest unit.
    const bool well_written = repair == fmt::format("write {}", node.text);
    if (!value && !(well_written && node.text.find('.') == std::string::npos)) {
      wrong_type(node, expected, well_written ? "use a smaller unit, without a fraction" : repair);
      return std::nullopt;
    }
    if (!value || !in_range(*value, key_.range, parse)) {
      out_of_range(node);
      return std::nullopt;
    }
    return value;
  }

  const KeyInfo& key_;
  std::string name_;  ///< of the key, or of the element that is read
  Problems& problems_;
};

template <typename Member, typename Value>
void store(Member* member, const std::optional<Value>& value) {
  if (value) *member = static_cast<Member>(*value);
}

}  // namespace

bool is_null_text(std::string_view text) {
  constexpr std::array<std::string_view, 5> kWords{"", "~", "null", "Null", "NULL"};
  return is_one_of(text, kWords);
}

bool is_bool_text(std::string_view text) {
  constexpr std::array<std::string_view, 6> kWords{"true", "True", "TRUE", "false", "False", "FALSE"};
  return is_one_of(text, kWords);
}

bool is_number_text(std::string_view text) {
  std::size_t i = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const std::size_t whole_end = skip_digits(text, i);
  std::size_t digits = whole_end - i;
  i = whole_end;
  if (i < text.size() && text[i] == '.') {
    const std::size_t fraction_end = skip_digits(text, i + 1);
    digits += fraction_end - i - 1;
    i = fraction_end;
  }
  if (digits == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    const std::size_t end = skip_digits(text, i);
    if (end == i) return false;
    i = end;
  }
  return i == text.size();
}

bool parse_host(std::string_view text, NodesSpec::Host& host) {
  std::string_view name = text;
  std::string_view slots;
  bool has_slots = false;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return false;
    name = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    has_slots = !rest.empty();
    if (has_slots && rest[0] != ':') return false;
    if (has_slots) slots = rest.substr(1);
    if (name.find(':') == std::string_view::npos) return false;
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    name = text.substr(0, colon);
    slots = text.substr(colon + 1);
    has_slots = true;
  }
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  };
  if (name.empty() || name.size() > 253 || !std::all_of(name.begin(), name.end(), fits)) return false;
  host.name = name;
  host.slots = 1;
  if (!has_slots) return true;
  return is_integer_text(slots) && read(slots, host.slots) == Outcome::good && host.slots >= 1 &&
         host.slots <= 65536;
}

std::string host_text(const NodesSpec::Host& host) {
  const bool ipv6 = host.name.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host.name, host.slots) : fmt::format("{}:{}", host.name, host.slots);
}

void assign(const Field& field, const Node& node, JobSpec& spec, Problems& problems) {
  if (node.broken) return;
  Reader reader(field, problems);
  const Target target = field.bind(spec);
  switch (field.key.type) {
    case KeyType::integer:
      if (int* const* member = std::get_if<int*>(&target)) return store(*member, reader.integer(node));
      return store(std::get<std::int64_t*>(target), reader.integer(node));
    case KeyType::number: return store(std::get<double*>(target), reader.number(node));
    case KeyType::boolean: return store(std::get<bool*>(target), reader.boolean(node));
    case KeyType::text: return store(std::get<std::string*>(target), reader.text(node));
    case KeyType::choice: return store(std::get<std::string*>(target), reader.choice(node));
    case KeyType::duration: return store(std::get<std::chrono::milliseconds*>(target), reader.duration(node));
    case KeyType::size: return store(std::get<std::int64_t*>(target), reader.bytes(node));
    case KeyType::list_of_integers:
      return store(std::get<std::vector<std::int64_t>*>(target),
                   reader.list<std::int64_t>(node, "a list of integers",
                                             [&](const Node& item) { return reader.integer(item); }));
    case KeyType::list_of_text:
      if (auto* const* hosts = std::get_if<std::vector<NodesSpec::Host>*>(&target)) {
        return store(*hosts, reader.list<NodesSpec::Host>(node, "a list of hosts", [&](const Node& item) {
          return reader.host(item);
        }));
      }
      return store(std::get<std::vector<std::string>*>(target),
                   reader.list<std::string>(node, "a list of texts",
                                            [&](const Node& item) { return reader.text(item); }));
    case KeyType::section: return;
  }
}

}  // namespace dtorch::job
