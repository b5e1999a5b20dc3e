// The gloo backend: collectives on CPU tensors over TCP, by the Gloo library.
#pragma once
#include "core/comm/backend_factory.h"

namespace dtorch {

/** The one factory; lives for ever. */
const BackendFactory& gloo_factory();

}  // namespace dtorch
