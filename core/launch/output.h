// What a rank prints: read from its pipes line by line, kept for the report, written to its log file.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/fd.h"

namespace dtorch {

/** Cuts a stream of bytes into lines. A line over 64 KiB is passed on in pieces. */
class LineSplitter {
 public:
  using OnLine = std::function<void(const std::string& line)>;
  void feed(std::string_view bytes, const OnLine& on_line);
  /** Passes on a last line that had no newline. */
  void finish(const OnLine& on_line);

 private:
  std::string partial_;
};

/** Reads one process's standard output and error. Not thread-safe. */
class RankOutput {
 public:
  using OnLine = std::function<void(bool is_stderr, const std::string& line)>;
  using OnFailure = std::function<void(const std::string& text)>;
  /**
   * Lines go to `on_line`, whole, in order; to the file too if `log_file` is not empty. `on_failure` hears once why the file
   * cannot be written any more. Throws Error(cannot_create).
   */
  RankOutput(const std::string& log_file, OnLine on_line, OnFailure on_failure);

  /** The write ends for the process; call close_writers once it runs. */
  int stdout_writer() const { return streams_[0].writer.get(); }
  int stderr_writer() const { return streams_[1].writer.get(); }
  void close_writers();
  /** The read end, or -1 once it has ended. */
  int reader(bool is_stderr) const { return streams_[is_stderr ? 1 : 0].reader.get(); }
  /** Reads what is there without blocking. False at the end of the stream, whose descriptor is then closed. */
  bool read_available(bool is_stderr);
  /** Reads what is left in both pipes, without waiting for writers that still hold them, and closes them. */
  void finish();
  /** The last lines, oldest first. */
  std::vector<std::string> tail() const { return {tail_.begin(), tail_.end()}; }
  /** Why the log file ends early; empty: it does not. */
  const std::string& log_failure() const { return log_failure_; }

 private:
  struct Stream {
    Fd reader;
    Fd writer;
    LineSplitter splitter;
  };
  void take(bool is_stderr, const std::string& line);

  Stream streams_[2];
  Fd log_file_;
  std::string log_name_;
  std::string log_failure_;
  OnLine on_line_;
  OnFailure on_failure_;
  std::deque<std::string> tail_;
};

}  // namespace dtorch
