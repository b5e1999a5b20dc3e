// Laying one tree over another: `extends` and -s overrides. Internal to core/job.
#pragma once
#include <deque>
#include <string>

#include "core/job/tree.h"

namespace dtorch::job {

/** What OVER says wins: maps merge, everything else replaces. Values keep the places of the text they come
 * from. */
void merge(Node& base, Node over);

/** Applies one "a.b.0=value". SOURCES keeps the flag's text alive for the places that point to it. */
void apply_override(Node& root, const std::string& flag, int order, std::deque<Source>& sources,
                    Problems& problems);

}  // namespace dtorch::job
