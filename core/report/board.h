// How a running job looks: rows of text from records, for a terminal's board or for plain lines. Draws nothing itself.
#pragma once
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/base/messages.h"

namespace dtorch {

struct BoardSize {
  int columns = 80;
  int rows = 24;
};

/** Collects records and renders them. Not thread-safe. */
class Board {
 public:
  Board(std::string job, int world_size, std::string backend, std::string dataset);
  void update(const StepRecord&);
  void update(const EpochRecord&);
  void update(const EvalRecord&);
  void phase(int rank, std::string phase);
  /** Lines that fit the window: a head, one row a rank (above 16 ranks min/median/max and the slowest), progress, time left. */
  std::vector<std::string> render(BoardSize size, bool colour) const;
  /** One line for logs: "epoch 1/5 step 120/469 loss 0.31 ...". */
  std::string plain_line() const;

 private:
  std::string job_;
  int world_size_;
  std::string backend_;
  std::string dataset_;
  std::map<int, StepRecord> steps_;
  std::map<int, std::string> phases_;
};

}  // namespace dtorch
