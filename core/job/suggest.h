// "Did you mean" for files. Internal to core/job.
#pragma once
#include <string>

namespace dtorch::job {

/** "did you mean 'configs/mnist.yaml'?" for a path that does not exist; empty when nothing is near. */
std::string suggest_file(const std::string& path);
/** The spec files of a folder, for someone who named the folder. */
std::string suggest_in_folder(const std::string& path);

}  // namespace dtorch::job
