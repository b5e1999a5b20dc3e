// The one table of backends this build knows.
#pragma once
#include <string>

#include "core/comm/backend_factory.h"

namespace dtorch {

/** All factories but auto's, which picks one of them once the ranks know each other. */
BackendTable backend_table();  // find_backend() is declared by core/comm/backend_factory.h

/** What a job will use, for people, and why. */
struct PlannedBackend {
  std::string name;
  std::string reason;
};
/** `local_ranks`: how many of the ranks this host has. Throws as find_backend(). */
PlannedBackend plan_backend(const std::string& asked, int world_size, int local_ranks);

}  // namespace dtorch
