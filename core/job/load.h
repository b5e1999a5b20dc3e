// From YAML files and -s overrides to a JobSpec, or to every problem found.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/job/spec.h"

namespace dtorch {

/** One problem in a spec, or in an override, with the place a person should look at. */
struct Diagnostic {
  std::string file;         ///< as the user gave it; "-s optimizer.lr=x" for an override
  int line = 0;             ///< from 1; 0: the file as a whole
  int column = 0;           ///< from 1, in characters
  std::string message;      ///< "unknown key 'optimzer'"
  std::string source_line;  ///< the text of that line, empty if there is none
  int length = 1;           ///< characters to underline
  std::string help;         ///< "did you mean 'optimizer'?", may be empty
};

/** `file:line:col: error: message`, the source line, a caret, `help: ...`, as a compiler prints it; no
 * colour. */
std::string format(const Diagnostic& diagnostic);

/** Thrown with every problem that was found, in file order. kind() is spec. */
class SpecError : public Error {
 public:
  explicit SpecError(std::vector<Diagnostic> diagnostics);
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
};

class SpecPlaces;  // core/job/places.h

/**
 * Reads PATH ("-" is stdin), its `extends` chain and the overrides ("optimizer.lr=0.1"), in that order of
 * precedence. Reads files only; touches nothing else. `places`, if not null, is told where the values stand.
 * Throws SpecError, or Error(spec) when the file cannot be read.
 */
JobSpec load_job(const std::string& path, const std::vector<std::string>& overrides,
                 SpecPlaces* places = nullptr);

/** The same from YAML text; `name` stands for the file in messages. `extends` is refused: text has no folder.
 */
JobSpec parse_job(const std::string& text, const std::string& name,
                  const std::vector<std::string>& overrides = {});

/**
 * Reads what to_yaml() wrote, here or on another machine. The environment is never looked at: a variable in it is a problem,
 * so that another machine's spec carries nothing of this one away.
 */
JobSpec parse_resolved(const std::string& text, const std::string& name);

/**
 * The canonical YAML of a resolved spec: every key, in the table's order. parse_resolved(to_yaml(s)) equals s, and
 * equal specs have equal text, so ranks compare its digest.
 */
std::string to_yaml(const JobSpec& spec);

}  // namespace dtorch
