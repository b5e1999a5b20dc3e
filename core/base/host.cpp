#include "core/base/host.h"

#include <unistd.h>

namespace dtorch {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

}  // namespace dtorch
