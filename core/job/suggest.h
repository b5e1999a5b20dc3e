// "Did you mean": the nearest of the right words. Internal to core/job.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace dtorch::job {

/** Edits (insert, delete, replace, swap neighbours) from one word to the other. */
std::size_t edit_distance(std::string_view a, std::string_view b);
/** The candidate nearest to WORD if it is near enough to be meant; empty otherwise. Case and '-' for '_' cost
 * nothing. */
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);
/** "did you mean 'configs/mnist.yaml'?" for a path that does not exist; empty when nothing is near. */
std::string suggest_file(const std::string& path);
/** The spec files of a folder, for someone who named the folder. */
std::string suggest_in_folder(const std::string& path);

}  // namespace dtorch::job
