#include "core/job/tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "core/job/interpolate.h"
#include "core/job/scalar.h"
#include "core/job/syntax.h"

namespace dtorch::job {
namespace {

/** Thrown to leave yaml-cpp's recursion once going on makes no sense; the reason is among the problems. */
struct Stop {};

/** Builds the tree from yaml-cpp's events. yaml-cpp's own nodes would forget duplicates, anchors and tags. */
class Builder : public YAML::EventHandler {
 public:
  Builder(const Source& source, Problems& problems, Variables variables)
      : source_(source), problems_(problems), variables_(variables) {}

  bool has_root() const { return has_root_; }
  Node take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ == 0) return;
    const std::string& text = source_.text();
    const std::size_t offset = source_.offset(mark.line, mark.column);
    const bool marked =
        text.compare(offset, 3, "---") == 0 || text.rfind("\n...", offset) != std::string::npos;
    if (marked) {
      problems_.add(place(mark), "a second YAML document", "a job spec is one document: remove the '---'");
    } else {
      problems_.add(place(mark), "not valid YAML: text after its end",
                    "a job spec is made of 'key: value' lines");
    }
    throw Stop{};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node node;
    node.place = place(mark);
    check_properties(node, {}, anchor);
    add(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Node node;
    node.place = place(mark);
    problems_.add(node.place, "YAML aliases (*name) are not allowed in a job spec",
                  "write the value out, or use 'extends'");
    node.broken = true;
    add(std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node;
    node.kind = Node::Kind::scalar;
    node.place = place(mark);
    node.quoted = tag == "!";
    node.text = value;
    node.place.length = static_cast<int>(count_characters(value)) + (node.quoted ? 2 : 0);
    check_properties(node, tag, anchor);
    check_closed(node);
    const bool is_key =
        !stack_.empty() && stack_.back().node.kind == Node::Kind::map && !stack_.back().has_key;
    if (!is_key && !node.broken) expand(node);
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(Node::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(Node::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    Node node;
    bool has_key = false;  ///< map: the next value belongs to `key`
    bool drop = false;     ///< map: that value is not wanted (duplicate, not text, <<)
    std::string key;
    Place key_place;
    std::unordered_map<std::string, std::size_t> lines;  ///< map: where each key was first given
  };

  Place place(const YAML::Mark& mark) const { return {&source_, source_.offset(mark.line, mark.column), 1}; }

  /** An anchor or an explicit tag stands where the node's place points to. */
  void check_properties(Node& node, const std::string& tag, YAML::anchor_t anchor) {
    const std::size_t offset = node.place.offset;
    const bool at_tag = offset < source_.text().size() && source_.text()[offset] == '!';
    Place first = node.place;
    first.length = 1;
    if (anchor != 0) {
      problems_.add(first, "YAML anchors (&name) are not allowed in a job spec",
                    "write the value out, or use 'extends'");
      node.broken = true;
    } else if (at_tag || (!tag.empty() && tag != "?" && tag != "!")) {
      problems_.add(first, "YAML tags (!name) are not allowed in a job spec",
                    "remove the tag: the key's type is known");
      node.broken = true;
    }
  }

  /** yaml-cpp takes the end of the file for the end of a quote if a line break precedes it. */
  void check_closed(Node& node) {
    const std::string& text = source_.text();
    std::size_t i = node.place.offset;
    const char quote = i < text.size() ? text[i] : ' ';
    if (node.broken || !node.quoted || (quote != '\'' && quote != '"')) return;
    for (++i; i < text.size(); ++i) {
      const bool escape =
          (quote == '"' && text[i] == '\\') || (quote == '\'' && text.compare(i, 2, "''") == 0);
      if (escape) {
        ++i;
      } else if (text[i] == quote) {
        return;
      }
    }
    problems_.add({&source_, node.place.offset, 1},
                  fmt::format("not valid YAML: a quote ({}) without its end", quote),
                  "close it on the same line");
    node.broken = true;
  }

  void expand(Node& node) {
    Interpolated result = interpolate(node.text, variables_);
    if (!result.problem.empty()) {
      problems_.add(node.place, result.problem, result.help);
      node.broken = true;
      return;
    }
    node.text = std::move(result.text);
    node.interpolated = result.any;
    // "${env:N}" needs quotes inside [ ] and { }, and is still meant as what N holds.
    if (result.whole) node.quoted = false;
    if (result.any && std::any_of(node.text.begin(), node.text.end(),
                                  [](unsigned char c) { return c < 0x20 || c == 0x7F; })) {
      problems_.add(node.place, "the environment variable's value has control characters");
      node.broken = true;
    }
  }

  void open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    Frame frame;
    frame.node.kind = kind;
    frame.node.place = place(mark);
    if (stack_.size() >= kMaxDepth) {
      problems_.add(frame.node.place, fmt::format("nested over {} deep", kMaxDepth));
      throw Stop{};
    }
    check_properties(frame.node, tag, anchor);
    stack_.push_back(std::move(frame));
  }

  void close() {
    Node node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(Node node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      has_root_ = true;
      return;
    }
    Frame& top = stack_.back();
    if (top.node.kind == Node::Kind::list) {
      top.node.items.push_back(std::move(node));
    } else if (!top.has_key) {
      take_key(top, node);
    } else {
      // An empty value has no place of its own: yaml-cpp gives that of whatever comes next.
      if (node.kind == Node::Kind::null && !node.broken) node.place = top.key_place;
      if (!top.drop) top.node.entries.push_back({std::move(top.key), top.key_place, std::move(node)});
      top.has_key = false;
    }
  }

  void take_key(Frame& map, const Node& key) {
    map.has_key = true;
    map.key = key.text;
    map.key_place = key.place;
    map.drop = true;
    if (key.broken) return;
    if (key.kind != Node::Kind::scalar) {
      problems_.add(key.place, fmt::format("a key must be text, not {}", describe(key)));
    } else if (key.text == "<<" && !key.quoted) {
      problems_.add(key.place, "YAML merge keys (<<) are not allowed in a job spec",
                    "use 'extends: other.yaml'");
    } else if (const auto [first, added] = map.lines.emplace(key.text, source_.line_of(key.place.offset) + 1);
               !added) {
      problems_.add(key.place, fmt::format("duplicate key '{}'", shown(key.text)),
                    fmt::format("it was first given in line {}", first->second));
    } else {
      map.drop = false;
    }
  }

  const Source& source_;
  Problems& problems_;
  Variables variables_;
  std::vector<Frame> stack_;
  Node root_;
  bool has_root_ = false;
  int documents_ = 0;
};

}  // namespace

Entry* Node::find(std::string_view key) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

const Entry* Node::find(std::string_view key) const { return const_cast<Node*>(this)->find(key); }

std::optional<Node> parse_tree(const Source& source, Problems& problems, Variables variables) {
  if (!check_text(source, problems)) return std::nullopt;
  Builder builder(source, problems, variables);
  try {
    std::istringstream stream(source.text());
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop&) {
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    add_syntax_error(source, source.offset(error.mark.line, error.mark.column), error.msg, problems);
    return std::nullopt;
  }
  Node root = builder.has_root() ? builder.take_root() : Node{};
  if (root.place.source == nullptr) root.place = {&source, 0, 1};
  return root;
}

std::string describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null: return "nothing";
    case Node::Kind::list: return "a list";
    case Node::Kind::map: return "a section";
    case Node::Kind::scalar: break;
  }
  if (!node.quoted && is_bool_text(node.text)) return fmt::format("the truth value {}", node.text);
  if (!node.quoted && is_number_text(node.text)) return fmt::format("the number {}", shown(node.text));
  return fmt::format("the text '{}'", shown(node.text));
}

}  // namespace dtorch::job
