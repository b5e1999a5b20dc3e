// What `dtorch run` shows: a board or plain lines on stderr, results or JSON lines on stdout.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/terminal.h"
#include "core/launch/launcher.h"
#include "core/report/board.h"

namespace dtorch {

struct RunViewOptions {
  OutputStyle style;
  std::string job;  ///< spec.name
  int world_size = 1;
  std::string backend;  ///< as the spec says; the plan says what is used
  std::string dataset;
  std::chrono::milliseconds interval{1000};  ///< spec.metrics.interval: between plain lines
  bool dry_run = false;                      ///< the plan is the result
  bool show_output = true;                   ///< what ranks print; false: it goes to files
  int out_fd = 1;
  int err_fd = 2;
};

/**
 * Shows a job. One thread at a time. Give it to run_job(), then call finish() with the outcome: until then
 * the cursor is hidden where there is a board, and nothing waits for a reader of stdout or stderr. While they take nothing,
 * results are kept; step records and log lines above a MiB are left out and counted. A reader of stdout that goes
 * away is no error.
 */
class RunView : public JobObserver {
 public:
  explicit RunView(RunViewOptions options);
  ~RunView() override;

  /** What the job is, where that is known only after the view was made, before its first event. The style stays. */
  void describe(const RunViewOptions& job);

  void plan(const nlohmann::json& plan) override;
  void phase(int rank, const std::string& phase) override;
  void step(const StepRecord& record) override;
  void epoch(const EpochRecord& record) override;
  void eval(const EvalRecord& record) override;
  void result(const ResultRecord& record) override;
  void log(int rank, const std::string& level, const std::string& text) override;
  void output(int rank, bool is_stderr, const std::string& line) override;
  void tick() override;
  bool congested() const override { return live_ ? live_->congested() : err_.congested(); }

  /** Leaves the last figures standing, prints the result or the failure, and waits until that is written. Returns the exit
   * code; cannot_write's where a job went well and its results could not be written. */
  int finish(const JobOutcome& outcome);

 private:
  void event(const char* name, const nlohmann::json& members);
  void say(const std::string& line);           ///< a line on stderr, above the board if there is one
  void say_progress(const std::string& line);  ///< the same, only where plain lines are wanted
  void print_result(const ResultRecord& record);
  void say_warning(const std::string& text);
  void tell_left_out(bool at_the_end);

  RunViewOptions options_;
  Outlet out_;
  Outlet err_;
  Board board_;
  std::unique_ptr<LiveBoard> live_;
  std::optional<ResultRecord> result_;
  Clock::time_point last_line_;
  std::string last_text_;
  std::int64_t steps_left_out_ = 0;
  std::int64_t lines_left_out_ = 0;
  bool told_of_failure_ = false;  ///< that stdout cannot be written to
};

}  // namespace dtorch
