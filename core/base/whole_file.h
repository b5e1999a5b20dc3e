// A file that appears whole or not at all.
#pragma once
#include <string>
#include <string_view>

#include "core/base/fd.h"

namespace dtorch {

/**
 * Written under another name beside its place, which is known to be writable from the start, then synced and renamed. A path that
 * exists and is no regular file (a pipe, /dev/stdout) is written to directly. Without commit() nothing is left. One thread.
 */
class WholeFile {
 public:
  /** Throws Error(cannot_create). */
  explicit WholeFile(std::string path);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  /** Writes this as the whole contents and publishes it; call it once. Throws Error(cannot_write). */
  void commit(std::string_view text);

 private:
  [[noreturn]] void fail(std::string_view call) const;

  std::string path_;
  std::string aside_;  ///< empty: there is nothing to rename or remove
  Fd file_;
};

}  // namespace dtorch
