// The canonical YAML of a resolved spec.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/units.h"
#include "core/job/fields.h"
#include "core/job/interpolate.h"
#include "core/job/load.h"
#include "core/job/scalar.h"

namespace dtorch {
namespace {

/** Text that YAML reads back as that text: plain where nothing in it is special, else in double quotes. */
std::string quoted(const std::string& text) {
  const auto harmless = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
  };
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), harmless) && text[0] != '-' &&
                     text[0] != '.' && !job::is_bool_text(text) && !job::is_null_text(text) &&
                     !job::is_number_text(text);
  if (plain) return text;
  std::string result = "\"";
  for (const char c : job::escape_interpolation(text)) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

template <typename List, typename Print>
std::string list(const List& items, const Print& print) {
  std::string result = "[";
  for (const auto& item : items) result += (result.size() > 1 ? ", " : "") + print(item);
  return result + "]";
}

std::string value_text(const job::Target& target, KeyType type) {
  struct Print {
    KeyType type;
    std::string operator()(std::monostate /*section*/) const { return ""; }
    std::string operator()(const int* value) const { return fmt::format("{}", *value); }
    std::string operator()(const std::int64_t* value) const {
      return type == KeyType::size ? size_text(*value) : fmt::format("{}", *value);
    }
    std::string operator()(const double* value) const { return fmt::format("{}", *value); }
    std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
    std::string operator()(const std::string* value) const { return quoted(*value); }
    std::string operator()(const std::chrono::milliseconds* value) const { return duration_text(*value); }
    std::string operator()(const std::vector<std::int64_t>* value) const {
      return list(*value, [](std::int64_t item) { return fmt::format("{}", item); });
    }
    std::string operator()(const std::vector<std::string>* value) const { return list(*value, quoted); }
    std::string operator()(const std::vector<NodesSpec::Host>* value) const {
      return list(*value, [](const NodesSpec::Host& host) { return quoted(job::host_text(host)); });
    }
  };
  return std::visit(Print{type}, target);
}

}  // namespace

std::string to_yaml(const JobSpec& spec) {
  JobSpec copy = spec;  // the table's rows give access to a mutable spec
  std::string text;
  for (const job::Field& field : job::fields()) {
    const std::string_view path = field.key.path;
    const std::size_t dot = path.find('.');
    const std::string_view name = dot == std::string_view::npos ? path : path.substr(dot + 1);
    const std::string value = value_text(field.bind(copy), field.key.type);
    text += fmt::format("{}{}:{}{}\n", dot == std::string_view::npos ? "" : "  ", name,
                        value.empty() ? "" : " ", value);
  }
  return text;
}

}  // namespace dtorch
