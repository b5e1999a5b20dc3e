// The one table of the job spec's keys. Validator, canonical form, documentation, and later the JSON Schema
// and the shells' completion all read it.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace dtorch {

enum class KeyType {
  integer,
  number,
  boolean,
  text,
  choice,
  duration,
  size,
  list_of_integers,
  list_of_text,
  section
};

struct KeyInfo {
  std::string_view path;  ///< "optimizer.lr"
  KeyType type;
  std::string_view fallback;  ///< default as YAML text; empty: required, or a section
  std::string_view range;  ///< ">= 0", "sgd | adam", for people and for the validator; free words for texts
  std::string_view doc;    ///< one line
  std::string_view later = {};  ///< choices that other versions have: refused by name, "nccl | mpi"
};

/** Every key, sections before their keys, in canonical order. */
std::span<const KeyInfo> job_keys();

/** "integer", "duration", "list of integers": a type for people. */
std::string_view to_string(KeyType type);

/** The reference table of all keys in Markdown, as docs/job-spec.md holds it. */
std::string job_keys_markdown();

}  // namespace dtorch
