#include "core/job/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/base/json_text.h"

namespace dtorch {

using nlohmann::json;

void SpecPlaces::set(const std::string& key, Diagnostic where, int order) {
  places_[key] = {std::move(where), order};
}

SpecPlaces::Where SpecPlaces::where(const std::string& key) const {
  auto found = places_.find(key);
  if (found == places_.end()) found = places_.find(key.substr(0, key.rfind('.')));
  if (found != places_.end()) return found->second;
  Where nowhere;
  nowhere.diagnostic.file = name_;
  return nowhere;
}

void SpecPlaces::raise(const std::vector<SpecProblem>& problems) const {
  if (problems.empty()) return;
  std::vector<Where> found;
  for (const SpecProblem& problem : problems) {
    Where at = where(problem.key);
    if (!problem.file.empty()) {
      at = {};
      at.diagnostic.file = problem.file;
      at.order = std::numeric_limits<int>::max();  // files come last
    }
    const bool unplaced = problem.file.empty() && places_.empty();
    at.diagnostic.message = unplaced ? fmt::format("{}: {}", problem.key, problem.message) : problem.message;
    at.diagnostic.help = problem.help;
    found.push_back(std::move(at));
  }
  std::stable_sort(found.begin(), found.end(), [](const Where& a, const Where& b) {
    return std::tie(a.order, a.diagnostic.line, a.diagnostic.column) <
           std::tie(b.order, b.diagnostic.line, b.diagnostic.column);
  });
  std::vector<Diagnostic> diagnostics;
  for (Where& each : found) diagnostics.push_back(std::move(each.diagnostic));
  const bool only_files = std::all_of(problems.begin(), problems.end(),
                                      [](const SpecProblem& problem) { return !problem.file.empty(); });
  if (only_files) throw Error(ErrorKind::data, SpecError(std::move(diagnostics)).what());
  throw SpecError(std::move(diagnostics));
}

std::string SpecPlaces::to_text() const {
  json places = json::object();
  for (const auto& [key, at] : places_) {
    const Diagnostic& d = at.diagnostic;
    places[key] = {at.order, d.file, d.line, d.column, d.length, d.source_line};
  }
  return json_text({{"name", name_}, {"places", places}});
}

SpecPlaces SpecPlaces::from_text(const std::string& text) {
  SpecPlaces result;
  if (text.empty()) return result;
  const json read = json::parse(text);
  result.name_ = read.at("name");
  for (const auto& [key, at] : read.at("places").items()) {
    Diagnostic d;
    d.file = at.at(1);
    d.line = at.at(2);
    d.column = at.at(3);
    d.length = at.at(4);
    d.source_line = at.at(5);
    result.set(key, std::move(d), at.at(0));
  }
  return result;
}

}  // namespace dtorch
