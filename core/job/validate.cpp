#include "core/job/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/nearest.h"
#include "core/job/fields.h"
#include "core/job/repair.h"
#include "core/job/scalar.h"

namespace dtorch::job {
namespace {

std::string join_path(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

/** A key of another section with that very name: 'lr' at the top level is 'optimizer.lr'. */
std::string_view same_name_elsewhere(std::string_view key) {
  for (const Field& field : fields()) {
    const std::size_t dot = field.key.path.find('.');
    if (key != "type" && field.key.path.substr(dot == std::string_view::npos ? 0 : dot + 1) == key)
      return field.key.path;
  }
  return {};
}

class Validator {
 public:
  explicit Validator(Problems& problems) : problems_(problems) {}

  Validated run(const Node& root, bool whole) {
    if (root.kind != Node::Kind::map) {
      problems_.add(root.place,
                    root.kind == Node::Kind::null
                        ? std::string("the job spec is empty")
                        : fmt::format("a job spec is made of 'key: value' lines, not {}", describe(root)),
                    "start with: version: 1");
      return {};
    }
    whole_ = whole;
    section(root, "");
    Place top = root.place;
    top.length = 1;
    require_keys(root, "", top);
    check_values(spec_, root, given_, problems_);
    if (whole) check_consistency(spec_, root, given_, problems_);
    return {std::move(spec_), std::move(given_)};
  }

 private:
  void section(const Node& node, std::string_view path) {
    for (const Entry& entry : node.entries) {
      const Field* field = find_field(join_path(path, entry.key));
      const bool is_path =
          entry.key.find('.') != std::string::npos;  // "optimizer.lr: 1" in a file is no path
      if (field == nullptr || is_path) {
        unknown_key(entry, path, is_path && field != nullptr);
      } else if (field->key.type == KeyType::section) {
        subsection(*field, entry);
      } else {
        const std::size_t before = problems_.count();
        assign(*field, entry.value, spec_, problems_);
        given_[field->key.path] = problems_.count() == before && !entry.value.broken ? &entry.value : nullptr;
      }
    }
  }

  void subsection(const Field& field, const Entry& entry) {
    const Node& node = entry.value;
    if (node.broken) return;
    // All keys of a section may be commented out.
    if (node.kind != Node::Kind::map && node.kind != Node::Kind::null) {
      const auto keys = keys_in(field.key.path);
      problems_.add(node.place, fmt::format("'{}' must be a section, not {}", field.key.path, describe(node)),
                    fmt::format("its keys: {}", fmt::join(keys, ", ")));
      return;
    }
    section(node, field.key.path);
    require_keys(node, field.key.path, entry.place);
  }

  void require_keys(const Node& node, std::string_view path, const Place& place) {
    if (!whole_) return;
    for (const std::string_view name : keys_in(path)) {
      const Field& field = *find_field(join_path(path, name));
      const bool section_needed = field.key.type == KeyType::section && needs_something(name);
      const bool key_needed = field.key.type != KeyType::section && field.key.fallback.empty();
      if ((section_needed || key_needed) && node.find(name) == nullptr) {
        const Field* type = find_field(join_path(name, "type"));
        problems_.add(place, fmt::format("missing key '{}'", field.key.path),
                      section_needed && type != nullptr
                          ? fmt::format("for example '{}: {}'", name, choices(type->key.range).front())
                          : fmt::format("values: {}", field.key.range));
      }
    }
  }

  static bool needs_something(std::string_view section) {
    return std::ranges::any_of(keys_in(section), [&](std::string_view key) {
      return find_field(join_path(section, key))->key.fallback.empty();
    });
  }

  void unknown_key(const Entry& entry, std::string_view path, bool dotted) {
    if (problems_.full()) return problems_.add(entry.place, {});
    const std::string shown_path = shown(join_path(path, entry.key));
    const auto later = later_keys();
    if (path.empty() && std::find(later.begin(), later.end(), entry.key) != later.end()) {
      problems_.add(entry.place, fmt::format("'{}' is not available yet in this version", entry.key),
                    "remove it");
      return;
    }
    std::string help;
    std::vector<std::string_view> candidates = keys_in(path);
    if (path.empty()) candidates.emplace_back("extends");
    if (const std::string strange = strange_character(entry.key); !strange.empty()) {
      help = strange;
    } else if (const std::string repair = separator_repair(entry.key);
               entry.value.kind == Node::Kind::null && !repair.empty()) {
      help = repair;
    } else if (dotted) {
      const std::size_t dot = entry.key.find('.');
      help = fmt::format("in a file, nest it: {}: {{{}: ...}}", entry.key.substr(0, dot),
                         entry.key.substr(dot + 1));
    } else if (const std::string_view same = same_name_elsewhere(entry.key); !same.empty()) {
      help = fmt::format("did you mean '{}'?", same);
    } else if (const std::string_view near = nearest(entry.key, candidates); !near.empty()) {
      // A flag names the whole path.
      help = fmt::format("did you mean '{}'?",
                         entry.place.source->flag() ? join_path(path, near) : std::string(near));
    } else {
      help = fmt::format("{}: {}", path.empty() ? "keys here" : fmt::format("keys of '{}'", path),
                         fmt::join(candidates, ", "));
    }
    problems_.add(entry.place, fmt::format("unknown key '{}'", path.empty() ? shown(entry.key) : shown_path),
                  help);
  }

  Problems& problems_;
  bool whole_ = true;
  JobSpec spec_;
  Given given_;
};

}  // namespace

void expand_shorthands(Node& root) {
  for (Entry& entry : root.entries) {
    const Field* field = find_field(entry.key);
    const bool has_type = field != nullptr && find_field(entry.key + ".type") != nullptr;
    if (!has_type || entry.value.kind != Node::Kind::scalar || entry.value.broken) continue;
    Node section;
    section.kind = Node::Kind::map;
    section.place = entry.value.place;
    section.entries.push_back({"type", entry.value.place, std::move(entry.value)});
    entry.value = std::move(section);
  }
}

Validated validate(const Node& root, bool whole, Problems& problems) {
  return Validator(problems).run(root, whole);
}

Place place_of(const Node& root, const Given& given, std::string_view path) {
  const auto found = given.find(path);
  if (found != given.end() && found->second != nullptr) return found->second->place;
  const Entry* section = root.find(path.substr(0, path.find('.')));
  Place result = section != nullptr ? section->place : root.place;
  result.length = section != nullptr ? result.length : 1;
  return result;
}

}  // namespace dtorch::job
