// The machine that this process runs on.
#pragma once
#include <string>

namespace dtorch {

/** gethostname(2); "localhost" if it fails. */
std::string host_name();

/** Of this start of the machine; empty where /proc does not tell. */
std::string boot_id();

/** Equal for two processes exactly if they reach each other over loopback and Unix sockets: the same start of the same
 * machine, and the same network namespace. Two namespaces share the boot id, two machines may share a namespace's number. */
std::string locality();

/** Processor cores that this thread may run on. */
int usable_cores();

}  // namespace dtorch
