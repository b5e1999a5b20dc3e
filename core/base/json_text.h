// JSON as text.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dtorch {

/**
 * The value on one line, or indented. Always UTF-8: paths, host names and what programs print may be any bytes, those that are
 * no text become U+FFFD (the library's own way throws).
 */
std::string json_text(const nlohmann::json& value, int indent = -1);

}  // namespace dtorch
