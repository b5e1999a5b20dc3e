// YAML as a tree with places: the part of YAML that a job spec may use. Internal to core/job.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/job/interpolate.h"
#include "core/job/source.h"

namespace dtorch::job {

struct Entry;

/** A value in a spec. Values are what the text said, not yet typed. */
struct Node {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  bool quoted = false;  ///< scalar: written in quotes or as a block, so text and nothing else
  bool interpolated =
      false;  ///< scalar: made from the environment, so it may be text even if it looks like a number
  bool broken = false;         ///< already reported: not to be judged further
  std::string text;            ///< scalar
  std::vector<Node> items;     ///< list
  std::vector<Entry> entries;  ///< map
  Place place;

  /** The entry of that key in a map, or null. */
  Entry* find(std::string_view key);
  const Entry* find(std::string_view key) const;
};

struct Entry {
  std::string key;
  Place place;
  Node value;
};

/**
 * Parses one document. Reports what a spec may not hold: syntax errors, duplicate and non-text keys, `<<`,
 * anchors, aliases, tags, a second document, too deep nesting, undefined ${env:...}. Nothing when the tree
 * would make no sense to go on with.
 */
std::optional<Node> parse_tree(const Source& source, Problems& problems, Variables variables);

/** "a list", "text 'abc'", "the number 1.5": what a value is, for messages. */
std::string describe(const Node& node);

}  // namespace dtorch::job
