#include "core/report/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/units.h"
#include "core/report/rows.h"
#include "core/report/text.h"

namespace dtorch {

using namespace report;

namespace {

constexpr std::size_t kMostRows = 16;  // of ranks; above, a summary
constexpr std::size_t kSummaryRows = 4;
constexpr double kStandsOut = 1.2;    // times the peers' compute time
constexpr double kNoticeable = 0.05;  // ms: less is noise
constexpr double kSmoothing = 0.2;    // weight of a new record in the mean step time

std::string ranks_text(std::size_t count) { return fmt::format("{} rank{}", count, count == 1 ? "" : "s"); }

/** The record that is furthest: ranks report at different moments. */
const StepRecord& furthest(const std::map<int, StepRecord>& steps) {
  return std::max_element(steps.begin(), steps.end(),
                          [](const auto& a, const auto& b) { return a.second.step < b.second.step; })
      ->second;
}

template <typename Value>
double mean_of(const std::map<int, StepRecord>& steps, const Value& value) {
  double sum = 0;
  for (const auto& [rank, record] : steps) sum += value(record);
  return sum / static_cast<double>(steps.size());
}

}  // namespace

Board::Board(const std::string& job, int world_size, const std::string& backend, const std::string& dataset)
    : job_(printable(job)),
      world_size_(world_size),
      backend_(printable(backend)),
      dataset_(printable(dataset)) {}

void Board::describe(const std::string& backend, const std::string& dataset) {
  backend_ = printable(backend);
  dataset_ = printable(dataset);
}

void Board::update(const StepRecord& record) {
  steps_[record.rank] = record;
  epochs_ = std::max(epochs_, record.epochs);
  if (std::isfinite(record.step_ms) && record.step_ms > 0) {
    mean_step_ms_ =
        mean_step_ms_ == 0 ? record.step_ms : mean_step_ms_ + kSmoothing * (record.step_ms - mean_step_ms_);
  }
}

void Board::update(const EpochRecord& record) { last_epoch_ = record; }
void Board::update(const EvalRecord& record) { last_eval_ = record; }
void Board::phase(int rank, const std::string& phase) { phases_[rank] = printable(phase); }

std::optional<int> Board::slow_rank() const {
  if (steps_.size() < 2) return std::nullopt;
  const auto slowest = std::max_element(steps_.begin(), steps_.end(), [](const auto& a, const auto& b) {
    return a.second.compute_ms < b.second.compute_ms;
  });
  std::vector<double> others;
  for (const auto& [rank, record] : steps_) {
    if (rank != slowest->first) others.push_back(record.compute_ms);
  }
  const double peers = median(std::move(others));
  const double compute = slowest->second.compute_ms;
  if (compute > peers * kStandsOut && compute - peers > kNoticeable) return slowest->first;
  return std::nullopt;
}

double Board::seconds_left() const {
  if (steps_.empty() || mean_step_ms_ == 0) return std::nan("");
  const StepRecord& at = furthest(steps_);
  const auto total = static_cast<double>(at.steps_per_epoch) * at.epochs;
  const double done = static_cast<double>(at.steps_per_epoch) * at.epoch + static_cast<double>(at.epoch_step);
  return std::max(total - done, 0.0) * mean_step_ms_ / 1000;
}

std::string Board::head() const {
  return fmt::format("{}  {}  {}  {}", job_, ranks_text(static_cast<std::size_t>(std::max(world_size_, 0))),
                     backend_, dataset_);
}

std::string Board::waiting_text() const {
  const auto joined = std::count_if(phases_.begin(), phases_.end(),
                                    [](const auto& entry) { return entry.second != "starting"; });
  if (joined == 0)
    return fmt::format("starting {}", ranks_text(static_cast<std::size_t>(std::max(world_size_, 0))));
  std::map<std::string, int> counts;
  for (const auto& [rank, phase] : phases_) ++counts[phase];
  std::string text;
  for (const auto& [phase, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, phase);
  return fmt::format("{} of {}", text, ranks_text(static_cast<std::size_t>(std::max(world_size_, 0))));
}

std::string Board::progress(int columns) const {
  if (steps_.empty()) return waiting_text();
  const StepRecord& at = furthest(steps_);
  const double share = at.steps_per_epoch > 0
                           ? static_cast<double>(at.epoch_step) / static_cast<double>(at.steps_per_epoch)
                           : 0;
  const bool done = !phases_.empty() && std::all_of(phases_.begin(), phases_.end(),
                                                    [](const auto& entry) { return entry.second == "done"; });
  const bool evaluating = std::any_of(phases_.begin(), phases_.end(),
                                      [](const auto& entry) { return entry.second == "evaluating"; });
  const std::string epoch = fmt::format("epoch {}/{}", at.epoch + 1, at.epochs);
  const std::string step =
      fmt::format("{:>4}  step {}/{}", share_text(share), at.epoch_step, at.steps_per_epoch);
  const std::string tail = done         ? "done"
                           : evaluating ? "evaluating"
                                        : fmt::format("{} left", human_duration(seconds_left()));
  const int room = columns - text_width(epoch) - text_width(step) - text_width(tail) - 4;
  if (room >= 8) return fmt::format("{} {} {}  {}", epoch, bar(share, std::min(room, 40)), step, tail);
  return fmt::format("{} {} {}", epoch, share_text(share), tail);
}

std::vector<std::string> Board::render(BoardSize size, bool colour) const {
  if (size.rows <= 0 || size.columns <= 0) return {};
  std::map<int, RankRow> known;
  for (const auto& [rank, phase] : phases_) known[rank] = {rank, nullptr, phase};
  for (const auto& [rank, record] : steps_) {
    const auto phase = phases_.find(rank);
    known[rank] = {rank, &record, phase == phases_.end() ? "training" : phase->second};
  }
  std::vector<RankRow> ranks;
  for (auto& [rank, row] : known) ranks.push_back(std::move(row));
  const TableStyle style{size.columns, colour, slow_rank()};

  std::string result;
  if (last_epoch_) result = epoch_line(*last_epoch_);
  if (last_eval_) result = eval_line(*last_eval_);

  // What is dropped first when rows are few: the result, then rank rows for a summary, the head, the whole
  // table.
  const auto room = static_cast<std::size_t>(size.rows);
  std::size_t around = 3 + (result.empty() ? 0 : 1);
  const bool sum_up =
      ranks.size() > kMostRows || (ranks.size() > kSummaryRows && ranks.size() + around > room);
  std::vector<std::string> table = sum_up ? summary_rows(ranks, style) : rank_rows(ranks, style);
  if (steps_.empty() && sum_up) table.clear();
  if (table.size() + around > room && !result.empty()) {
    result.clear();
    --around;
  }
  std::vector<std::string> lines;
  if (table.size() + 3 <= room || (table.empty() && room >= 2))
    lines.push_back(painted(fit(head(), size.columns), "1;36", colour));
  if (!table.empty() && table.size() + 2 <= room) {
    if (!steps_.empty()) lines.push_back(table_head(style));
    for (std::string& line : table) lines.push_back(std::move(line));
  } else if (!steps_.empty() && room >= 2) {
    lines.push_back(summary_rows(ranks, style).back());  // the slowest rank
  }
  lines.push_back(fit(progress(size.columns), size.columns));
  if (!result.empty()) lines.push_back(fit(result, size.columns));
  return lines;
}

std::string Board::plain_line() const {
  if (steps_.empty()) return waiting_text();
  const StepRecord& at = furthest(steps_);
  double samples = 0;
  for (const auto& [rank, record] : steps_) samples += record.samples_per_s;
  std::string line = fmt::format(
      "epoch {}/{} step {}/{} loss {} {} samples/s step {} comm {} data {}", at.epoch + 1, at.epochs,
      at.epoch_step, at.steps_per_epoch,
      loss_text(mean_of(steps_, [](const StepRecord& r) { return r.loss; })), human_count(samples),
      milliseconds_text(mean_of(steps_, [](const StepRecord& r) { return r.step_ms; })),
      share_text(mean_of(steps_, [](const StepRecord& r) { return r.comm_share; })),
      share_text(mean_of(steps_, [](const StepRecord& r) { return r.data_share; })));
  if (const auto slow = slow_rank()) {
    line += fmt::format(" slow rank {} (compute {})", *slow, milliseconds_text(steps_.at(*slow).compute_ms));
  }
  if (std::isfinite(seconds_left())) line += fmt::format(" {} left", human_duration(seconds_left()));
  return line;
}

std::string Board::epoch_line(const EpochRecord& record) const {
  return fmt::format("epoch {}/{}: loss {}, {} samples/s, {}", record.epoch + 1,
                     std::max(epochs_, record.epoch + 1), loss_text(record.loss),
                     human_count(record.samples_per_s), human_duration(record.seconds));
}

std::string Board::eval_line(const EvalRecord& record) const {
  return fmt::format("epoch {}/{}: test accuracy {:.2f}%, loss {}", record.epoch + 1,
                     std::max(epochs_, record.epoch + 1), record.accuracy * 100, loss_text(record.loss));
}

}  // namespace dtorch
