// How much memory processes here can have.
#pragma once
#include <cstdint>
#include <string>

namespace dtorch {

/**
 * Bytes that this machine's processes can have together: its memory and swap, or less where a control group (of a
 * container, of a batch system) sets a limit. ROOT stands before /proc and /sys, for tests. 0: not to be found out.
 */
std::uint64_t memory_limit(const std::string& root = {});

}  // namespace dtorch
