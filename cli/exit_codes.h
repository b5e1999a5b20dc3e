// The one table from error kinds to exit codes. Only main exits with them.
#pragma once
#include "core/base/error.h"
#include "core/base/messages.h"

namespace dtorch {

inline int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::expectation: return 1;
    case ErrorKind::usage: return 64;
    case ErrorKind::data: return 65;
    case ErrorKind::lost: return 69;
    case ErrorKind::training: return 70;
    case ErrorKind::os_resource: return 71;
    case ErrorKind::cannot_create: return 73;
    case ErrorKind::cannot_write: return 74;
    case ErrorKind::stopped: return 75;
    case ErrorKind::disagree: return 76;
    case ErrorKind::not_allowed: return 77;
    case ErrorKind::spec: return 78;
    case ErrorKind::interrupted: return 130;
    case ErrorKind::timeout: return 124;
  }
  return 70;
}

/** 128 + signal for a job that a signal stopped, else by the table. */
inline int exit_code(const Failure& failure) {
  if (failure.kind == ErrorKind::interrupted && failure.signal != 0) return 128 + failure.signal;
  return exit_code(failure.kind);
}

}  // namespace dtorch
