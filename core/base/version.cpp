#include "core/base/version.h"

namespace dtorch {

std::string_view version() { return DTORCH_VERSION; }

}  // namespace dtorch
