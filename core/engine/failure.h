// From an exception to what the launcher, torchrun and a person are told.
#pragma once
#include <exception>
#include <optional>
#include <string>

#include "core/base/messages.h"

namespace dtorch::engine {

/**
 * What went wrong, without libtorch's C++ backtraces; where (rank, host, step) is for the caller to add. An
 * exception after an abort, or a connection that a peer closed, is marked as a consequence.
 */
Failure describe_failure(const std::exception_ptr& exception, const std::optional<std::string>& abort_reason);

/** On stderr, as the command line writes errors. */
void print_failure(const Failure& failure);

/** Writes {"message", "timestamp"} to $TORCHELASTIC_ERROR_FILE, if set, so that torchrun names the cause. */
void write_elastic_error(const Failure& failure);

}  // namespace dtorch::engine
