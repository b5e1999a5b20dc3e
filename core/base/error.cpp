#include "core/base/error.h"

#include <array>
#include <cstring>
#include <utility>

namespace dtorch {
namespace {

constexpr std::array<std::pair<ErrorKind, std::string_view>, 14> kNames{{
    {ErrorKind::expectation, "expectation"},
    {ErrorKind::usage, "usage"},
    {ErrorKind::data, "data"},
    {ErrorKind::lost, "lost"},
    {ErrorKind::training, "training"},
    {ErrorKind::os_resource, "os_resource"},
    {ErrorKind::cannot_create, "cannot_create"},
    {ErrorKind::cannot_write, "cannot_write"},
    {ErrorKind::stopped, "stopped"},
    {ErrorKind::disagree, "disagree"},
    {ErrorKind::not_allowed, "not_allowed"},
    {ErrorKind::spec, "spec"},
    {ErrorKind::interrupted, "interrupted"},
    {ErrorKind::timeout, "timeout"},
}};

}  // namespace

std::string_view to_string(ErrorKind kind) {
  for (const auto& [value, name] : kNames) {
    if (value == kind) return name;
  }
  return "training";
}

std::optional<ErrorKind> error_kind_from(std::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) return value;
  }
  return std::nullopt;
}

std::string errno_text(std::string_view call, int error_number) {
  return std::string(call) + ": " + std::strerror(error_number);
}

}  // namespace dtorch
