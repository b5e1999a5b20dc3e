// Slurm's compressed host lists: "node[03-05,9],gpu1".
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dtorch {

/**
 * The hosts a list stands for, in its order. Brackets hold numbers and ranges, zero-padded as their lower end
 * is; a name may have several ("r[1-2]n[01-04]"). Throws Error(spec) that shows the list when it is
 * malformed, and for more than 65,536 hosts.
 */
std::vector<std::string> expand_hostlist(std::string_view list);

}  // namespace dtorch
