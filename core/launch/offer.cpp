#include "core/launch/offer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json_text.h"

namespace dtorch {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxSpec = 1 << 20;       // bytes, as of a spec file
constexpr std::size_t kMaxText = 4 * kMaxSpec;  // escapes make it longer
constexpr std::size_t kMaxNodes = 65'536;       // as --nnodes
constexpr std::size_t kMaxTerms = 64;

[[noreturn]] void malformed(std::string_view what) {
  throw Error(ErrorKind::disagree, fmt::format("node 0's offer is malformed: {}", what),
              "does another version of dtorch, or another program, run there?");
}

void read_job(const json& offered, Offer& offer) {
  const json spec = offered.value("spec", json());
  const json nodes = offered.value("nodes", json());
  if (!spec.is_string()) malformed("'spec' is no text");
  if (!nodes.is_array() || nodes.empty() || nodes.size() > kMaxNodes)
    malformed(fmt::format("'nodes' is no list of 1 to {} numbers", kMaxNodes));
  offer.spec = spec.get<std::string>();
  if (offer.spec.size() > kMaxSpec) malformed("the spec is over 1 MiB");
  for (const json& ranks : nodes) {
    // An unsigned number beyond int64 is not to wrap around.
    const bool fits = ranks.is_number_integer() && ranks >= 1 && ranks <= kMaxRanksPerNode;
    if (!fits) malformed(fmt::format("a node has 1 to {} ranks", kMaxRanksPerNode));
    offer.nodes.push_back(ranks.get<int>());
  }
}

Terms read_terms(const json& terms) {
  if (!terms.is_array() || terms.size() > kMaxTerms) malformed("'terms' is no short list");
  Terms result;
  for (const json& term : terms) {
    if (!term.is_array() || term.size() != 2 || !term[0].is_string() || !term[1].is_string())
      malformed("a term is no name with a text");
    result.emplace_back(term[0].get<std::string>(), term[1].get<std::string>());
  }
  return result;
}

}  // namespace

std::string to_text(const Offer& offer) {
  json text{{"terms", offer.terms}, {"run_id", offer.run_id}};
  if (!offer.nodes.empty()) {
    text["spec"] = offer.spec;
    text["nodes"] = offer.nodes;
  }
  return json_text(text);
}

Offer read_offer(std::string_view text) {
  if (text.size() > kMaxText) malformed("it is over 4 MiB");
  const json offered = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!offered.is_object()) malformed("it is no JSON object");
  Offer offer;
  offer.terms = read_terms(offered.value("terms", json::array()));
  const json run_id = offered.value("run_id", json(""));
  if (!run_id.is_string()) malformed("'run_id' is no text");
  offer.run_id = run_id.get<std::string>();
  const bool programs = !offered.contains("spec") && !offered.contains("nodes") && !offer.run_id.empty();
  if (!programs) read_job(offered, offer);
  return offer;
}

}  // namespace dtorch
