// The table's rows with the struct members they fill. Internal to core/job.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/job/spec.h"
#include "core/job/table.h"

namespace dtorch::job {

/** A member of a JobSpec; the alternative fits the key's type. monostate: a section. */
using Target = std::variant<std::monostate, int*, std::int64_t*, double*, bool*, std::string*,
                            std::chrono::milliseconds*, std::vector<std::int64_t>*, std::vector<std::string>*,
                            std::vector<NodesSpec::Host>*>;

struct Field {
  KeyInfo key;
  Target (*bind)(JobSpec& spec);
};

std::span<const Field> fields();
const Field* find_field(std::string_view path);
/** Names of the keys directly in SECTION ("" is the top level). */
std::vector<std::string_view> keys_in(std::string_view section);
/** Top-level keys that the design has and this version does not. */
std::span<const std::string_view> later_keys();
/** "a | b | c" as a list. */
std::vector<std::string_view> choices(std::string_view text);

}  // namespace dtorch::job
