// What ranks must have in common before they train together.
#pragma once
#include <string>

#include "core/job/spec.h"

namespace dtorch::engine {

struct JobDigest {
  std::string value;  ///< SHA-256 of text, hexadecimal
  std::string text;   ///< "key: value" lines: versions and the spec, without what may differ between machines
};
JobDigest job_digest(const JobSpec& spec);

}  // namespace dtorch::engine
