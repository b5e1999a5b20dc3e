// What `dtorch bench` shows: tables as nccl-tests prints them, JSON lines or CSV on stdout, progress on stderr.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "core/base/bench_messages.h"
#include "core/base/whole_file.h"
#include "core/launch/launcher.h"
#include "core/report/bandwidth.h"

namespace dtorch {

struct BenchViewOptions {
  OutputStyle style;
  BenchRequest request;
  bool csv = false;
  bool fit = false;
  std::string html;  ///< a page to write in the end; empty: none
  std::vector<report::Expectation> expectations;
};

/** Shows a benchmark. Give it to run_job(), then call finish() with the outcome. One thread. */
class BenchView : public JobObserver {
 public:
  /** Throws Error(cannot_create) when the page has no place. */
  explicit BenchView(BenchViewOptions options);

  void bench_start(const BenchStart& start) override;
  void bench_row(const BenchRow& row) override;
  void log(int rank, const std::string& level, const std::string& text) override;
  void output(int rank, bool is_stderr, const std::string& line) override;
  bool congested() const override { return err_.congested(); }

  /** Prints what is left, writes the page and judges the expectations, or prints the failure. Returns the exit code. Throws
   * Error(cannot_write). */
  int finish(const JobOutcome& outcome);

 private:
  bool table() const { return !options_.style.json && !options_.csv; }
  /** With one backend rows appear as they come; several ones are put side by side when an operation is done. */
  bool live() const { return options_.request.backends.size() == 1; }
  void print(const std::string& text);
  void event(const char* name, const nlohmann::json& members);
  void say(const std::string& line);
  void begin_operation(const BenchRow& row);
  void end_operation();
  void print_fits();
  std::vector<std::string> failed_expectations();

  BenchViewOptions options_;
  std::optional<WholeFile> page_;
  Outlet out_{1, "standard output"};
  Outlet err_{2, "standard error"};
  BenchStart start_;
  std::vector<BenchRow> rows_;
  std::size_t operation_begin_ = 0;  ///< index in rows_ of the current operation's first
};

}  // namespace dtorch
