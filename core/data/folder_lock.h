// One process at a time in a folder.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "core/base/fd.h"

namespace dtorch {

/**
 * Holds the lock of a folder from construction to destruction; the kernel lets go of it when the process
 * dies. While another process holds it, says so once (naming that process) and waits, as long as that process
 * gets on: `progress` gives a number that changes while it does. Throws Error(timeout) when nothing has
 * changed for the given time, Error(cannot_create) when the folder takes no lock file.
 */
class FolderLock {
 public:
  FolderLock(const std::string& folder, const std::string& purpose,
             const std::function<std::uint64_t()>& progress, std::chrono::milliseconds patience);

 private:
  Fd file_;
};

}  // namespace dtorch
