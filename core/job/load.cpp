#include "core/job/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>

#include "core/job/merge.h"
#include "core/job/places.h"
#include "core/job/source.h"
#include "core/job/table.h"
#include "core/job/tree.h"
#include "core/job/validate.h"

namespace dtorch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestChain = 16;  // of files that extend one another
constexpr int kFirstFlag = 1'000;          // flags' messages come after those of files

/** One load: the texts read, and what was wrong with them. */
class Loader {
 public:
  explicit Loader(job::Variables variables) : variables_(variables) {}

  JobSpec load(const std::string& path, const std::vector<std::string>& overrides, SpecPlaces* places) {
    job::FileText file = job::read_file(path);
    if (!file.message.empty()) throw Error(ErrorKind::spec, file.message, file.help);
    std::optional<job::Node> root = parse(path == "-" ? "<stdin>" : path, std::move(file.text));
    std::vector<fs::path> chain{identity(path)};
    if (root)
      root = with_base(std::move(*root), path == "-" ? fs::path() : fs::path(path).parent_path(), chain);
    return finish(std::move(root), overrides, places);
  }

  JobSpec parse_text(const std::string& text, const std::string& name,
                     const std::vector<std::string>& overrides) {
    if (text.size() > job::kMaxBytes)
      throw Error(ErrorKind::spec, fmt::format("'{}' is over 1 MiB, too long for a job spec", name));
    std::optional<job::Node> root = parse(name, text);
    if (root) {
      if (const job::Entry* extends = root->find("extends")) {
        problems_.add(extends->place, "'extends' needs a file: this text has no folder");
        std::erase_if(root->entries, [](const job::Entry& entry) { return entry.key == "extends"; });
      }
    }
    return finish(std::move(root), overrides, nullptr);
  }

 private:
  static fs::path identity(const std::string& path) {
    std::error_code error;
    return path == "-" ? fs::path() : fs::weakly_canonical(path, error);
  }

  std::optional<job::Node> parse(const std::string& name, std::string text) {
    const job::Source& source = sources_.emplace_back(name, std::move(text), files_++, false);
    std::optional<job::Node> root = job::parse_tree(source, problems_, variables_);
    if (root) job::expand_shorthands(*root);
    return root;
  }

  /** NODE laid over the file that its `extends` names; NODE alone where that cannot be read. */
  job::Node with_base(job::Node node, const fs::path& folder, std::vector<fs::path>& chain) {
    const job::Entry* extends = node.find("extends");
    if (extends == nullptr) return node;
    std::optional<job::Node> base = read_base(extends->value, folder, chain);
    std::erase_if(node.entries, [](const job::Entry& entry) { return entry.key == "extends"; });
    if (!base) {
      whole_ = false;  // half of the keys would look missing
      return node;
    }
    job::merge(*base, std::move(node));
    return std::move(*base);
  }

  std::optional<job::Node> read_base(const job::Node& value, const fs::path& folder,
                                     std::vector<fs::path>& chain) {
    if (value.broken) return std::nullopt;
    if (value.kind != job::Node::Kind::scalar || value.text.empty()) {
      problems_.add(value.place,
                    fmt::format("'extends' must be the name of one file, not {}", job::describe(value)));
      return std::nullopt;
    }
    const std::string path = (folder / value.text).lexically_normal().string();
    if (std::find(chain.begin(), chain.end(), identity(path)) != chain.end()) {
      problems_.add(value.place,
                    fmt::format("'{}' extends itself, directly or through others", job::shown(path)));
      return std::nullopt;
    }
    chain.push_back(identity(path));
    if (chain.size() > kLongestChain) {
      problems_.add(value.place, fmt::format("over {} files extend one another", kLongestChain));
      return std::nullopt;
    }
    job::FileText file = job::read_file(path);
    if (!file.message.empty()) {
      problems_.add(value.place, file.message,
                    file.help.empty() ? "'extends' is relative to the file that it stands in" : file.help);
      return std::nullopt;
    }
    std::optional<job::Node> base = parse(path, std::move(file.text));
    if (!base) return std::nullopt;
    if (base->kind != job::Node::Kind::map) {
      problems_.add(base->place, base->kind == job::Node::Kind::null
                                     ? "the job spec is empty"
                                     : "a job spec is made of 'key: value' lines");
      return std::nullopt;
    }
    return with_base(std::move(*base), fs::path(path).parent_path(), chain);
  }

  JobSpec finish(std::optional<job::Node> root, const std::vector<std::string>& overrides,
                 SpecPlaces* places) {
    if (!root) {  // what the flags say can be checked all the same
      whole_ = false;
      root.emplace();
      root->kind = job::Node::Kind::map;
      root->place = {&sources_.front(), 0, 1};
    }
    int order = kFirstFlag;
    for (const std::string& flag : overrides) job::apply_override(*root, flag, order++, sources_, problems_);
    job::expand_shorthands(*root);
    job::Validated result = job::validate(*root, whole_, problems_);
    if (problems_) throw SpecError(problems_.take());
    if (places != nullptr) note_places(*root, result.given, *places);
    return std::move(result.spec);
  }

  /** Of every key, and of a list's first and last element. */
  static void note_places(const job::Node& root, const job::Given& given, SpecPlaces& places) {
    const auto note = [&](const std::string& key, const job::Place& place) {
      places.set(key, job::diagnostic_at(place), place.source->order());
    };
    for (const KeyInfo& key : job_keys()) {
      if (key.type == KeyType::section) continue;
      const std::string path(key.path);
      note(path, job::place_of(root, given, path));
      const auto found = given.find(key.path);
      if (found == given.end() || found->second->items.empty()) continue;
      const auto& items = found->second->items;
      note(path + ".0", items.front().place);
      note(fmt::format("{}.{}", path, items.size() - 1), items.back().place);
    }
  }

  const job::Variables variables_;
  std::deque<job::Source> sources_;  // never moved: places point into them
  job::Problems problems_;
  int files_ = 0;
  bool whole_ = true;  ///< nothing of the spec is missing because it could not be read
};

}  // namespace

JobSpec load_job(const std::string& path, const std::vector<std::string>& overrides, SpecPlaces* places) {
  return Loader(job::Variables::replace).load(path, overrides, places);
}

JobSpec parse_resolved(const std::string& text, const std::string& name) {
  return Loader(job::Variables::refuse).parse_text(text, name, {});
}

JobSpec parse_job(const std::string& text, const std::string& name,
                  const std::vector<std::string>& overrides) {
  return Loader(job::Variables::replace).parse_text(text, name, overrides);
}

}  // namespace dtorch
