// The one table of the job spec's keys. Validator, canonical form, documentation, and later the JSON Schema and the shells'
// completion all read it.
#pragma once
#include <span>
#include <string_view>

namespace dtorch {

enum class KeyType { integer, number, boolean, text, choice, duration, size, list_of_integers, list_of_text, section };

struct KeyInfo {
  std::string_view path;      ///< "optimizer.lr"
  KeyType type;
  std::string_view fallback;  ///< default as YAML text; empty: required, or a section
  std::string_view range;     ///< ">= 0", "sgd | adam", for people and for the validator's message
  std::string_view doc;       ///< one line
};

/** Every key, sections before their keys, in canonical order. */
std::span<const KeyInfo> job_keys();

}  // namespace dtorch
