// What is wrong with a text that is no YAML, in words for people who did not mean to learn YAML. Internal to core/job.
#pragma once
#include <string>

#include "core/job/source.h"

namespace dtorch::job {

/**
 * Reports why the parser gave up at OFFSET with MESSAGE. The parser notices late: a tab, a bracket or a line without ':'
 * further up is found and named instead.
 */
void add_syntax_error(const Source& source, std::size_t offset, const std::string& message,
                      Problems& problems);

}  // namespace dtorch::job
