// The one table of backends this build knows.
#pragma once
#include <memory>
#include <string>

#include "core/comm/backend_factory.h"

namespace dtorch {

/** All factories, in order of preference for `auto`. */
BackendTable backend_table();
/** The factory of that name, or the preferred available one for "auto". Throws Error(spec) listing the known
 * ones, or Error(lost) with the probe's reason. */
const BackendFactory& find_backend(const std::string& name);

}  // namespace dtorch
