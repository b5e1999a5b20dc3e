// Messages that name their place themselves, as a compiler's do.
#pragma once
#include <string_view>

#include "core/base/error.h"

namespace dtorch {

/** Whether an error reads "job.yaml:4:1: error: ...", with lines of source and help of its own (SpecError). */
bool names_its_place(ErrorKind kind, std::string_view message);

}  // namespace dtorch
