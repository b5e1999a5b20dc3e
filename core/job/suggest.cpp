#include "core/job/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/base/nearest.h"

namespace dtorch::job {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 1000;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end && names.size() < kMostFiles;
       i.increment(error)) {
    names.push_back(i->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_spec_name(std::string_view name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

std::string nearest_in(const fs::path& folder, const std::string& word) {
  const std::vector<std::string> names = names_in(folder);
  const std::vector<std::string_view> views(names.begin(), names.end());
  return std::string(nearest(word, views));
}

}  // namespace

std::string suggest_file(const std::string& path) {
  const fs::path wanted(path);
  const fs::path folder = wanted.parent_path();
  std::error_code error;
  for (const char* suffix : {".yaml", ".yml"}) {
    if (fs::exists(path + suffix, error)) return fmt::format("did you mean '{}{}'?", path, suffix);
  }
  if (!fs::is_directory(folder.empty() ? "." : folder, error)) {
    const std::string near =
        nearest_in(folder.parent_path().empty() ? "." : folder.parent_path(), folder.filename().string());
    const fs::path candidate = folder.parent_path() / near / wanted.filename();
    if (!near.empty() && fs::exists(candidate, error))
      return fmt::format("did you mean '{}'?", candidate.string());
    return fmt::format("there is no folder '{}'", folder.string());
  }
  const std::string near = nearest_in(folder.empty() ? "." : folder, wanted.filename().string());
  if (!near.empty()) return fmt::format("did you mean '{}'?", (folder / near).string());
  if (folder.empty() && fs::exists("configs" / wanted, error))
    return fmt::format("did you mean 'configs/{}'?", path);
  return {};
}

std::string suggest_in_folder(const std::string& path) {
  std::string list;
  int count = 0;
  for (const std::string& name : names_in(path)) {
    if (!is_spec_name(name)) continue;
    if (++count > 8) return fmt::format("name a file in it: {}, ...", list);
    list += (list.empty() ? "" : ", ") + (fs::path(path) / name).string();
  }
  return list.empty() ? "" : fmt::format("name a file in it: {}", list);
}

}  // namespace dtorch::job
