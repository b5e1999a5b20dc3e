// The tcp backend: a transport of our own over sockets.
#pragma once
#include "core/comm/backend_factory.h"

namespace dtorch {

const BackendFactory& tcp_factory();

}  // namespace dtorch
