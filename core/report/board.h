// How a running job looks: rows of text from records, for a terminal's board or for plain lines. Draws
// nothing itself.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/messages.h"

namespace dtorch {

struct BoardSize {
  int columns = 80;
  int rows = 24;
};

/** Collects the records of one job and renders the last state. Not thread-safe. */
class Board {
 public:
  Board(const std::string& job, int world_size, const std::string& backend, const std::string& dataset);

  /** What the plan or the result says is really used. */
  void describe(const std::string& backend, const std::string& dataset);
  void update(const StepRecord& record);
  void update(const EpochRecord& record);
  void update(const EvalRecord& record);
  /** joining, training, evaluating, done: shown in the rank's row until its first step, and when it is not
   * "training". */
  void phase(int rank, const std::string& phase);

  /**
   * Lines that fit the window: at most size.rows, each at most size.columns wide, however small that is. A
   * head, one row a rank (above 16 ranks, or where they do not fit, min/median/max and the slowest), progress
   * with time left, the last evaluation. A rank whose compute time is a fifth above its peers' is marked: the
   * others only wait for it.
   */
  std::vector<std::string> render(BoardSize size, bool colour) const;
  /** One line for logs: "epoch 1/5 step 120/469 loss 0.312 ..."; before the first step, how many ranks have
   * come. */
  std::string plain_line() const;
  /** "epoch 1/5: loss 0.312, 46.1k samples/s, 2.6 s" for a log, at an epoch's end. */
  std::string epoch_line(const EpochRecord& record) const;
  /** "epoch 1/5: test accuracy 96.12%, loss 0.131" */
  std::string eval_line(const EvalRecord& record) const;

  /** The rank that the others wait for, if one stands out. */
  std::optional<int> slow_rank() const;

 private:
  std::string head() const;
  std::string progress(int columns) const;
  std::string waiting_text() const;
  double seconds_left() const;

  std::string job_;
  int world_size_;
  std::string backend_;
  std::string dataset_;
  std::map<int, StepRecord> steps_;
  std::map<int, std::string> phases_;
  std::optional<EpochRecord> last_epoch_;
  std::optional<EvalRecord> last_eval_;
  int epochs_ = 0;
  double mean_step_ms_ = 0;  ///< smoothed, so that the time left does not jump
};

}  // namespace dtorch
