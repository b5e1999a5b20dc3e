#include "core/job/syntax.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <vector>

namespace dtorch::job {
namespace {

/** Where a mistake is and what it is. */
struct Finding {
  std::size_t offset;
  std::string message;
  std::string help;
};

constexpr std::size_t kNone = std::string_view::npos;

std::size_t indent_of(std::string_view line) { return std::min(line.find_first_not_of(" \t"), line.size()); }

/** The line without its comment and the blanks around. */
std::string_view content(std::string_view line) {
  for (std::size_t hash = line.find('#'); hash != kNone; hash = line.find('#', hash + 1)) {
    if (hash != 0 && line[hash - 1] != ' ' && line[hash - 1] != '\t') continue;
    line = line.substr(0, hash);
    break;
  }
  line.remove_prefix(indent_of(line));
  return line.substr(0, line.find_last_not_of(" \t\r") + 1);
}

/** Where the line has a ':' that ends a key. */
std::size_t key_end(std::string_view text) {
  for (std::size_t colon = text.find(':'); colon != kNone; colon = text.find(':', colon + 1)) {
    if (colon + 1 == text.size() || text[colon + 1] == ' ' || text[colon + 1] == '\t') return colon;
  }
  return kNone;
}

/** One walk over the lines up to the one where the parser gave up. */
class Search {
 public:
  Search(const Source& source, std::size_t offset, const std::string& message)
      : source_(source), offset_(offset), last_(source.line_of(offset)), message_(message) {}

  std::optional<Finding> run() const {
    if (auto found = quote()) return found;
    if (auto found = tab()) return found;
    if (auto found = reference()) return found;
    if (auto found = bracket(); found && source_.line_of(found->offset) <= last_) return found;
    if (auto found = interpolation()) return found;
    if (auto found = colon()) return found;
    return indentation();
  }

 private:
  std::size_t at(std::size_t line, std::size_t column) const { return source_.line_start(line) + column; }

  /** The last line with something on it before LINE; kNone if there is none. */
  std::size_t above(std::size_t line) const {
    while (line-- > 0) {
      if (!content(source_.line(line)).empty()) return line;
    }
    return kNone;
  }

  /** The quote that a text up to the end of the file began with. */
  std::optional<Finding> quote() const {
    if (message_ != "illegal EOF in scalar") return std::nullopt;
    std::size_t begin = offset_;
    const std::string& text = source_.text();
    while (begin > 0) {
      const char c = text[--begin];
      const bool first = begin == 0 || std::string_view(" \t\n[{,:").find(text[begin - 1]) != kNone;
      if (first && (c == '\'' || c == '"'))
        return Finding{begin, fmt::format("a quote ({}) without its end", c), "close it on the same line"};
    }
    return std::nullopt;
  }

  std::optional<Finding> tab() const {
    for (std::size_t i = 0; i <= last_; ++i) {
      const std::string_view line = source_.line(i);
      const std::size_t tab = line.substr(0, indent_of(line)).find('\t');
      if (tab != kNone && !content(line).empty())
        return Finding{at(i, tab), "a tab in the indentation",
                       "indent with spaces: YAML does not allow tabs"};
    }
    return std::nullopt;
  }

  std::optional<Finding> reference() const {
    const bool undefined = message_ == "the referenced anchor is not defined";
    if (!undefined && message_.find(" not found after ") == std::string::npos) return std::nullopt;
    return Finding{undefined || offset_ == 0 ? offset_ : offset_ - 1,
                   "anchors (&name) and aliases (*name) are not allowed in a job spec",
                   "put a text that begins with & or * in quotes"};
  }

  /** The first bracket without its counterpart. Quotes and brackets count only where a value can begin. */
  std::optional<Finding> bracket() const {
    std::vector<std::size_t> open;
    const std::string& text = source_.text();
    bool begins = true;  // a value may begin here
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
      if (c == '#' && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\n' || text[i - 1] == '\t')) {
        i = std::min(text.find('\n', i), text.size()) - 1;
      } else if ((c == '"' || c == '\'') && begins) {
        i = std::min(text.find(c, i + 1), text.size() - 1);
        begins = false;
      } else if ((c == '[' || c == '{') && (begins || !open.empty())) {
        open.push_back(i);
        begins = true;
      } else if ((c == ']' || c == '}') && (!open.empty() || source_.line_of(i) == last_)) {
        const char other = c == ']' ? '[' : '{';
        if (open.empty()) return Finding{i, fmt::format("a '{}' that closes no '{}'", c, other), "remove it"};
        if (text[open.back()] != other) return unclosed(open.back());
        open.pop_back();
        begins = false;
      } else if (!blank || c == '\n') {
        begins = c == ':' || c == ',' || c == '-' || c == '\n';
      }
    }
    return open.empty() ? std::nullopt : std::optional(unclosed(open.back()));
  }

  Finding unclosed(std::size_t offset) const {
    const char c = source_.text()[offset];
    const char other = c == '[' ? ']' : '}';
    return {offset, fmt::format("a '{}' without its '{}'", c, other),
            fmt::format("close it with '{}'", other)};
  }

  std::optional<Finding> interpolation() const {
    const std::size_t dollar = source_.line(last_).find("${");
    if (dollar == kNone) return std::nullopt;
    return Finding{at(last_, dollar), "'${' inside [ ] or { }",
                   "inside [ ] and { } put the value in quotes: \"${env:NAME}\""};
  }

  /** "model mlp" where "model: mlp" was meant: on the parser's line, or just above. */
  std::optional<Finding> colon() const {
    for (const std::size_t line : {above(last_), last_}) {
      if (line == kNone) continue;
      const std::string_view text = content(source_.line(line));
      const std::size_t space = text.find(' ');
      const bool a_key = !text.empty() && std::string_view("-?[]{}\"'%&*!|>@`").find(text[0]) == kNone;
      if (!a_key || space == kNone || key_end(text) != kNone) continue;
      const std::size_t before = above(line);
      const std::string_view previous = before == kNone ? "" : source_.line(before);
      const bool continues =
          indent_of(source_.line(line)) > indent_of(previous) && !content(previous).ends_with(':');
      if (before != kNone && continues) continue;  // a text over several lines
      return Finding{at(line, indent_of(source_.line(line))), "a line without a ':'",
                     fmt::format("write '{}:{}'", shown(text.substr(0, space)), shown(text.substr(space)))};
    }
    return std::nullopt;
  }

  std::optional<Finding> indentation() const {
    const std::string_view line = source_.line(last_);
    const std::string_view text = content(line);
    const std::size_t before = above(last_);
    const std::string help = "keys of one section begin in the same column";
    if (before == kNone || text.empty()) return std::nullopt;
    const std::string_view previous = source_.line(before);
    if (message_ == "end of map not found" && indent_of(line) < indent_of(previous))
      return Finding{at(last_, indent_of(line)), "indented unlike every line above", help};
    if (message_ != "illegal map value") return std::nullopt;
    if (indent_of(line) > indent_of(previous) && !content(previous).ends_with(':'))
      return Finding{at(last_, indent_of(line)), "indented deeper than the line above, which has its value",
                     help};
    const std::size_t first = key_end(text);
    if (first == kNone || key_end(text.substr(first + 1)) == kNone) return std::nullopt;
    return Finding{offset_, "a second ': ' in one line", "put the value in quotes"};
  }

  const Source& source_;
  const std::size_t offset_;
  const std::size_t last_;
  const std::string& message_;
};

}  // namespace

void add_syntax_error(const Source& source, std::size_t offset, const std::string& message,
                      Problems& problems) {
  std::optional<Finding> found = Search(source, offset, message).run();
  const bool unknown = message == "unknown token";
  if (!found && unknown && offset < source.text().size()) {
    found =
        Finding{offset, fmt::format("a value cannot begin with '{}'", shown(source.text().substr(offset, 1))),
                "put it in quotes"};
  }
  if (!found) found = Finding{offset, message, "is an indent, a quote, a ':' or a bracket missing?"};
  problems.add({&source, found->offset, 1}, "not valid YAML: " + found->message, found->help);
}

}  // namespace dtorch::job
