// Who listens on a TCP port of this machine.
#pragma once
#include <string>

namespace dtorch {

/** "python3 (pid 1234)" for the process that listens on the port; empty where /proc does not tell (another
 * user's). */
std::string port_owner(int port);

}  // namespace dtorch
