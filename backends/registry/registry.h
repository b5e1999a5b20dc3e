// The one table of backends this build knows.
#pragma once
#include "core/comm/backend_factory.h"

namespace dtorch {

/** All factories, in order of preference for `auto`. */
BackendTable backend_table();  // find_backend() is declared by core/comm/backend_factory.h

}  // namespace dtorch
