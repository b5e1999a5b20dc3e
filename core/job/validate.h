// From a tree to a JobSpec, by the table; then what must hold between keys. Internal to core/job.
#pragma once
#include <map>
#include <string_view>

#include "core/job/spec.h"
#include "core/job/tree.h"

namespace dtorch::job {

/** Where each given key's value stands, by path; null for a value that was refused. */
using Given = std::map<std::string_view, const Node*>;

struct Validated {
  JobSpec spec;  ///< defaults filled in; meaningless when problems were added
  Given given;
};

/**
 * The spec that ROOT describes. Of one that is not `whole` (the file it extends cannot be read) only what is there
 * is judged: no key is missed, no two keys are compared.
 */
Validated validate(const Node& root, bool whole, Problems& problems);

/** Checks of values that the table's ranges cannot say; those that were refused already are left out. */
void check_values(const JobSpec& spec, const Node& root, const Given& given, Problems& problems);
/** Checks that need several keys at once; those whose keys had problems of their own are left out. */
void check_consistency(const JobSpec& spec, const Node& root, const Given& given, Problems& problems);

/** A key's place: its value's if it is given, else its section's, else the file's head. */
Place place_of(const Node& root, const Given& given, std::string_view path);

/** Turns `model: mlp` into `model: {type: mlp}`, for the sections that have a type. */
void expand_shorthands(Node& root);

}  // namespace dtorch::job
