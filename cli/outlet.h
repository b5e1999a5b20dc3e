// A descriptor that the command line writes to without ever waiting for its reader.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/error.h"

namespace dtorch {

/** Writes all of TEXT, however long that takes; false when it cannot be written, errno says why. Retries after signals. */
bool write_all(int fd, std::string_view text);

/**
 * Standard output or error of a job. What is written waits in memory and goes out on a thread of its own, so that a paused
 * terminal (Ctrl-S) or a stopped reader never holds up the one who watches the job. Nothing is dropped here: who writes
 * much asks congested() first. After a write that failed nothing more is written. write() and the questions may be asked
 * from any thread.
 */
class Outlet {
 public:
  /** FD stays open; NAME is for messages ("standard output"). Throws Error(os_resource) without a thread. */
  Outlet(int fd, std::string name);
  /** Waits as flush() does. */
  ~Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  int fd() const { return fd_; }
  /** Whole lines, or a whole frame. Never blocks. */
  void write(std::string_view text);
  /** Bytes that wait. */
  std::size_t waiting() const;
  /** A MiB waits: results must be kept all the same, the rest should not be added to. */
  bool congested() const { return waiting() >= kMuch; }
  /** Blocks until everything is written or cannot be. */
  void flush();
  /** Error(cannot_write) once a write has failed. A reader that has gone away (| head) is no error. */
  std::optional<Error> failure() const;

 private:
  static constexpr std::size_t kMuch = std::size_t{1} << 20;
  void run();

  int fd_;
  std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;     ///< something to write, or the end
  std::condition_variable written_;  ///< nothing waits any more
  std::string queue_;                // guarded by mutex_, as all below
  std::size_t on_its_way_ = 0;       ///< bytes that the thread is writing
  int error_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace dtorch
