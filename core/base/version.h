// Which dtorch this is.
#pragma once
#include <string_view>

namespace dtorch {

/** "0.1.0", the project's version. */
std::string_view version();

}  // namespace dtorch
