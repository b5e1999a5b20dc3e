#include "core/job/interpolate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/job/source.h"

namespace dtorch::job {
namespace {

bool is_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), fits) && !(name[0] >= '0' && name[0] <= '9');
}

/** Appends the value of what stands between `${` and `}`. */
void expand(std::string_view inside, Interpolated& result) {
  constexpr std::string_view kForm =
      "write ${env:NAME} or ${env:NAME:-default}; '$${' stands for a plain '${'";
  if (!inside.starts_with("env:")) {
    result.problem = fmt::format("unknown interpolation '${{{}}}'", shown(inside));
    result.help = kForm;
    return;
  }
  inside.remove_prefix(4);
  const std::size_t dash = inside.find(":-");
  const std::string name(inside.substr(0, dash));
  if (!is_name(name)) {
    result.problem = fmt::format("'{}' is not a name of an environment variable", shown(name));
    result.help = kForm;
    return;
  }
  // As in a shell, ":-" also replaces an empty value.
  const char* value = std::getenv(name.c_str());
  if (value != nullptr && (*value != '\0' || dash == std::string_view::npos)) {
    result.text += value;
  } else if (dash != std::string_view::npos) {
    result.text += inside.substr(dash + 2);
  } else {
    result.problem = fmt::format("environment variable {} is not set", name);
    result.help = fmt::format("set it, or give a default: ${{env:{}:-default}}", name);
  }
}

}  // namespace

Interpolated interpolate(const std::string& text, Variables variables) {
  Interpolated result;
  const std::string_view view(text);
  for (std::size_t i = 0; i < view.size();) {
    if (view.substr(i, 3) == "$${") {
      result.text += "${";
      i += 3;
    } else if (view.substr(i, 2) == "${" && variables == Variables::refuse) {
      result.problem = "a resolved spec has no variables";
      result.help = "they are replaced where the spec is written; '$${' stands for a plain '${'";
      return result;
    } else if (view.substr(i, 2) == "${") {
      const std::size_t end = view.find('}', i);
      if (end == std::string_view::npos) {
        result.problem = "'${' without its '}'";
        result.help = "inside [ ] and { } put the value in quotes: \"${env:NAME}\"";
        return result;
      }
      expand(view.substr(i + 2, end - i - 2), result);
      if (!result.problem.empty()) return result;
      result.any = true;
      result.whole = i == 0 && end + 1 == view.size();
      i = end + 1;
    } else {
      result.text += view[i++];
    }
  }
  return result;
}

std::string escape_interpolation(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "${") == 0) result += '$';
    result += text[i];
  }
  return result;
}

}  // namespace dtorch::job
