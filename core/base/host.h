// What this machine calls itself.
#pragma once
#include <string>

namespace dtorch {

/** gethostname(2); "localhost" if it fails. */
std::string host_name();

}  // namespace dtorch
