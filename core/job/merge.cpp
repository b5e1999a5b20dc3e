#include "core/job/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_map>

#include "core/job/fields.h"

namespace dtorch::job {
namespace {

bool is_index(std::string_view text) {
  return !text.empty() && text.size() <= 6 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::size_t to_index(std::string_view text) {
  std::size_t index = 0;
  std::from_chars(text.data(), text.data() + text.size(), index);
  return index;
}

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t dot = path.find('.');
    parts.push_back(path.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    path.remove_prefix(dot + 1);
  }
}

/** Walks from the root to what a flag names, making what is not there yet. */
class Walk {
 public:
  Walk(Node& root, const Place& place, std::deque<Source>& sources, Problems& problems)
      : node_(&root), place_(place), sources_(sources), problems_(problems) {}

  Node* to(const std::vector<std::string_view>& parts) {
    for (const std::string_view part : parts) {
      if (!step(part)) return nullptr;
      if (!path_.empty()) path_ += '.';
      path_ += part;
    }
    return node_;
  }

 private:
  bool step(std::string_view part) {
    if (node_->broken) return false;
    if (node_->kind == Node::Kind::null) {
      const Field* field = find_field(path_);
      const bool a_list = field != nullptr && (field->key.type == KeyType::list_of_integers ||
                                               field->key.type == KeyType::list_of_text);
      become_container(a_list || is_index(part));
    }
    if (node_->kind == Node::Kind::list) return step_into_list(part);
    if (node_->kind != Node::Kind::map) {
      // `optimizer: sgd` in the file and `-s optimizer.lr=1`: the scalar stands for {type: sgd}.
      if (path_.find('.') != std::string::npos || find_field(path_ + ".type") == nullptr) {
        problems_.add(place_,
                      fmt::format("'{}' is a single value and has no '{}'", shown(path_), shown(part)));
        return false;
      }
      Node type = std::move(*node_);
      *node_ = Node{};
      node_->kind = Node::Kind::map;
      node_->place = type.place;
      node_->entries.push_back({"type", type.place, std::move(type)});
    }
    Entry* entry = node_->find(part);
    if (entry == nullptr) {
      node_->entries.push_back({std::string(part), place_, Node{}});
      entry = &node_->entries.back();
      entry->value.place = place_;
    }
    node_ = &entry->value;
    return true;
  }

  void become_container(bool list) {
    node_->kind = list ? Node::Kind::list : Node::Kind::map;
    node_->place = place_;
    const Field* field = list ? find_field(path_) : nullptr;
    if (field == nullptr) return;
    // Elements of a list that the file leaves at its default.
    const Source& source =
        sources_.emplace_back("default of " + path_, std::string(field->key.fallback), 0, true);
    if (auto value = parse_tree(source, problems_, Variables::replace);
        value && value->kind == Node::Kind::list)
      *node_ = std::move(*value);
    node_->place = place_;  // what is wrong with the list as a whole is the override's doing
  }

  bool step_into_list(std::string_view part) {
    const std::size_t size = node_->items.size();
    if (!is_index(part) || to_index(part) > size) {
      problems_.add(
          place_,
          fmt::format("'{}' is a list of {}: '{}' is none of its places", shown(path_), size, shown(part)),
          size == 0 ? "write 0 to begin it" : fmt::format("write 0 to {}, or {} to append", size - 1, size));
      return false;
    }
    if (to_index(part) == size) node_->items.emplace_back().place = place_;
    node_ = &node_->items[to_index(part)];
    return true;
  }

  Node* node_;
  Place place_;
  std::deque<Source>& sources_;
  Problems& problems_;
  std::string path_;
};

}  // namespace

void merge(Node& base, Node over) {
  const bool section_without_keys =
      base.kind == Node::Kind::map && over.kind == Node::Kind::null && !over.broken;
  if (section_without_keys) return;
  if (base.kind != Node::Kind::map || over.kind != Node::Kind::map || base.broken || over.broken) {
    base = std::move(over);
    return;
  }
  base.place = over.place;
  std::unordered_map<std::string, std::size_t> places;  // find() each would be quadratic in hostile files
  for (std::size_t i = 0; i < base.entries.size(); ++i) places.emplace(base.entries[i].key, i);
  for (Entry& entry : over.entries) {
    if (const auto same = places.find(entry.key); same != places.end()) {
      base.entries[same->second].place = entry.place;
      merge(base.entries[same->second].value, std::move(entry.value));
    } else {
      base.entries.push_back(std::move(entry));
    }
  }
}

void apply_override(Node& root, const std::string& flag, int order, std::deque<Source>& sources,
                    Problems& problems) {
  const std::size_t equals = flag.find('=');
  const std::string value = equals == std::string::npos ? std::string() : flag.substr(equals + 1);
  const Source& source = sources.emplace_back("-s " + flag, value, order, true);
  const Place place{&source, 0, 1};
  const auto parts = split(std::string_view(flag).substr(0, equals));
  const bool no_name =
      std::any_of(parts.begin(), parts.end(), [](std::string_view part) { return part.empty(); });
  if (equals == std::string::npos || no_name || parts.size() > kMaxDepth) {
    problems.add(place, "an override is written key=value",
                 "for example -s optimizer.lr=0.1 or -s nodes.hosts.0=a:2");
    return;
  }
  if (const std::size_t bracket = flag.find('['); bracket < equals) {
    problems.add(place, fmt::format("unknown key '{}'", shown(flag.substr(0, equals))),
                 fmt::format("the first element of a list is written {}.0", shown(flag.substr(0, bracket))));
    return;
  }
  if (parts[0] == "extends") {
    problems.add(place, "'extends' stands in a file, not in an override");
    return;
  }
  std::optional<Node> tree = parse_tree(source, problems, Variables::replace);
  if (!tree) return;
  Node* target = Walk(root, place, sources, problems).to(parts);
  if (target == nullptr) return;
  // `-s model=mlp` means the type and keeps the section's other keys, as a file that extends another one
  // would.
  const bool shorthand =
      parts.size() == 1 && tree->kind == Node::Kind::scalar && target->kind == Node::Kind::map;
  if (shorthand) target = Walk(*target, place, sources, problems).to({"type"});
  if (target == nullptr) return;
  if (tree->kind == Node::Kind::null) {
    *target = std::move(*tree);
  } else {
    merge(*target, std::move(*tree));
  }
}

}  // namespace dtorch::job
