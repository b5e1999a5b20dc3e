// How what somebody wrote should have been written, for the help of messages. Internal to core/job.
#pragma once
#include <string>
#include <string_view>

namespace dtorch::job {

/** TEXT with its ASCII letters small. */
std::string lower(std::string_view text);
/** "write 5min" for "5 minutes", "add a unit: 5s" for "5"; empty where no number stands before a known word. Of a size
 * unless it is a `time`. */
std::string unit_repair(std::string_view text, bool time);
/** "write [784, 512, 10]" for "784,512,10" or "784 512 10". */
std::string list_repair(std::string_view text);
/** "write 'epochs: 5'" for the keys `epochs 5`, `epochs:5` and `epochs=5`, empty for others. */
std::string separator_repair(std::string_view key);

}  // namespace dtorch::job
