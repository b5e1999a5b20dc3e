// What node 0 tells the other nodes of a job.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtorch {

/** What nodes must be started with alike: name and text. */
using Terms = std::vector<std::pair<std::string, std::string>>;

/** The most ranks that one machine takes. */
inline constexpr int kMaxRanksPerNode = 4'096;

struct Offer {
  std::string spec;        ///< the resolved spec, canonical; empty: programs (dtorch launch)
  std::vector<int> nodes;  ///< ranks of each node, node 0 first; empty: as each node likes (dtorch launch)
  Terms terms;
  std::string run_id;
  bool operator==(const Offer&) const = default;
};

std::string to_text(const Offer& offer);

/**
 * Reads what to_text() wrote, on another machine perhaps, by another program perhaps: a spec of at most 1 MiB, with
 * at least one node, at least one and not too many ranks on each, or neither. What the spec says is not looked at. Throws Error(disagree).
 */
Offer read_offer(std::string_view text);

}  // namespace dtorch
