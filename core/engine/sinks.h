// Where a rank's metrics go: the control channel, the losses file, or plain lines when nobody else prints.
#pragma once
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/engine/rank_control.h"
#include "core/train/trainer.h"

namespace dtorch::engine {

/** As Python's float.hex(): 13 hexadecimal digits, lower case; exact. */
std::string hex_float(double value);

/** One loss a line, exact, as golden/. Throws Error(cannot_create, cannot_write). */
class LossesFile {
 public:
  /** Creates PATH.RANK, emptying a file of an earlier run. */
  LossesFile(const std::string& path, int rank);
  void add(double loss);
  /** Flushes and closes; what close(2) finds out late (a full disk) is thrown here. */
  void close();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void check(bool fine) const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/**
 * A rank's sink. Without a channel rank 0 prints epochs and evaluations on stderr and the result on stdout; with `json` all of
 * them and every rank's steps are JSON lines on stdout. Throws Error(cannot_write) where stdout takes nothing.
 */
class RankSink : public MetricsSink {
 public:
  /** `losses` may be null. */
  RankSink(RankControl& control, std::unique_ptr<LossesFile> losses, bool json = false);
  void phase(const std::string& phase) override;
  void step(const StepRecord& record) override;
  void loss(double loss) override;
  void epoch(const EpochRecord& record) override;
  void eval(const EvalRecord& record) override;
  void result(const ResultRecord& record) override;
  /** To be called after training: commits the losses file. */
  void close();

 private:
  RankControl& control_;
  std::unique_ptr<LossesFile> losses_;
  bool json_;
};

/** Writes {"event": name, and the object's members but "type"} as a line to stdout. Throws Error(cannot_write). */
void print_event(const char* name, nlohmann::json members);
/** Writes to stdout at once. Throws Error(cannot_write); a reader that has gone away (| head) is no error. */
void print_result(const std::string& text);

}  // namespace dtorch::engine
