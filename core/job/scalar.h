// From a node to a typed, range-checked member of the spec. Internal to core/job.
#pragma once
#include <string_view>

#include "core/job/fields.h"
#include "core/job/tree.h"

namespace dtorch::job {

/** What plain (unquoted) text means by YAML 1.2's core schema. */
bool is_null_text(std::string_view text);
bool is_bool_text(std::string_view text);
bool is_number_text(std::string_view text);

/** Checks NODE against the field's type and range and stores it; reports and stores nothing when it does not
 * fit. */
void assign(const Field& field, const Node& node, JobSpec& spec, Problems& problems);

/** "HOST", "HOST:SLOTS", "[ADDRESS]:SLOTS"; false when it is none of them. */
bool parse_host(std::string_view text, NodesSpec::Host& host);
std::string host_text(const NodesSpec::Host& host);

}  // namespace dtorch::job
