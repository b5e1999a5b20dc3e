#include "core/job/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace dtorch::job {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestWord = 64;
constexpr std::size_t kMostFiles = 1000;

std::string folded(std::string_view word) {
  std::string result(word);
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

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

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kLongestWord) return {};
  const std::string wanted = folded(word);
  std::string_view best;
  // A third of the word may be wrong: 'optimzer' is near 'optimizer', 'lr' is near nothing but itself and
  // 'l'.
  std::size_t best_distance = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const std::size_t distance = edit_distance(wanted, folded(candidate));
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

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
