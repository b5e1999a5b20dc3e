// Errors that users read. Every failure dtorch can explain is an Error with a kind; cli/exit_codes.h maps kinds to
// exit codes, and only the command line's main exits.
#pragma once
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace dtorch {

/** What a caller (or a shell script reading the exit code) can do about a failure; see design's exit table. */
enum class ErrorKind {
  expectation,    ///< an --expect was not met (1)
  usage,          ///< the command line is wrong (64)
  data,           ///< a dataset or checkpoint is damaged (65)
  lost,           ///< a rank, peer or store is gone, or a backend cannot load (69)
  training,       ///< NaN, divergence, or a fault of dtorch itself (70)
  os_resource,    ///< a port, memory, /dev/shm is missing (71)
  cannot_create,  ///< an output file cannot be created (73)
  cannot_write,   ///< writing failed, for example a full disk (74)
  stopped,        ///< stopped on request, a checkpoint was written (75)
  disagree,       ///< ranks differ in spec, world size, version or order of collectives (76)
  not_allowed,    ///< permission, or a joiner's refusal (77)
  spec,           ///< the job spec is wrong (78)
  interrupted,    ///< stopped on request without a checkpoint (130 or 143)
  timeout,        ///< stalled, or a deadline passed (124)
};

/** "lost", "timeout", ...: the enumerator's name, for JSON and logs. */
std::string_view to_string(ErrorKind kind);
/** The kind of that name; nothing if there is none. */
std::optional<ErrorKind> error_kind_from(std::string_view name);

/** An explained failure. `what()` says what happened and where, `help()` (may be empty) what to do about it. */
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::string help = {})
      : std::runtime_error(message), kind_(kind), help_(std::move(help)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& help() const { return help_; }

 private:
  ErrorKind kind_;
  std::string help_;
};

/** "open: No such file or directory" for the given errno value. */
std::string errno_text(std::string_view call, int error_number);

}  // namespace dtorch
