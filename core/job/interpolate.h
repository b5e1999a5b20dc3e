// ${env:NAME:-default} in the text of a value. Internal to core/job.
#pragma once
#include <string>

namespace dtorch::job {

struct Interpolated {
  std::string text;
  bool any = false;     ///< something was replaced
  bool whole = false;   ///< the text was one ${...} and nothing else
  std::string problem;  ///< not empty: what is wrong
  std::string help;
};

/** Whether a text was written by this machine's user, or is what to_yaml() made of a spec: that has no variables left. */
enum class Variables { replace, refuse };

/**
 * Replaces every ${env:NAME} and ${env:NAME:-default} once; `$${` stands for `${`. Reads the environment, but never where
 * variables are refused: then they are the problem.
 */
Interpolated interpolate(const std::string& text, Variables variables);
/** The text that interpolate() turns back into TEXT. */
std::string escape_interpolation(const std::string& text);

}  // namespace dtorch::job
