// What node 0 tells the other nodes of a job.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dtorch {

struct Offer {
  std::string spec;        ///< the resolved spec, canonical
  std::vector<int> nodes;  ///< ranks of each node, node 0 first
  bool operator==(const Offer&) const = default;
};

std::string to_text(const Offer& offer);

/**
 * Reads what to_text() wrote, on another machine perhaps, by another program perhaps: a spec of at most 1 MiB, at least one
 * node, at least one and not too many ranks on each. What the spec says is not looked at. Throws Error(disagree).
 */
Offer read_offer(std::string_view text);

}  // namespace dtorch
