// From a tree to a JobSpec, by the table; then what must hold between keys. Internal to core/job.
#pragma once
#include <map>
#include <string_view>

#include "core/job/spec.h"
#include "core/job/tree.h"

namespace dtorch::job {

/** Where each given key's value stands, by path; null for a value that was refused. */
using Given = std::map<std::string_view, const Node*>;

/** The spec that ROOT describes, defaults filled in. Meaningless when problems were added. */
JobSpec validate(const Node& root, Problems& problems);

/** Checks that need several keys at once; those whose keys had problems of their own are left out. */
void check_consistency(const JobSpec& spec, const Node& root, const Given& given, Problems& problems);

/** Turns `model: mlp` into `model: {type: mlp}`, for the sections that have a type. */
void expand_shorthands(Node& root);

}  // namespace dtorch::job
