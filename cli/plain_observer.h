// A job's progress as plain lines, or as JSON lines.
#pragma once
#include "core/launch/launcher.h"

namespace dtorch::cli {

class PlainObserver : public JobObserver {
 public:
  PlainObserver(bool json, bool quiet) : json_(json), quiet_(quiet) {}
  void plan(const nlohmann::json& plan) override;
  void phase(int rank, const std::string& phase) override;
  void step(const StepRecord& record) override;
  void epoch(const EpochRecord& record) override;
  void eval(const EvalRecord& record) override;
  void result(const ResultRecord& record) override;
  void log(int rank, const std::string& level, const std::string& text) override;
  void output(int rank, bool is_stderr, const std::string& line) override;
  void tick() override {}

 private:
  void event(const char* name, nlohmann::json fields) const;

  bool json_;
  bool quiet_;
};

}  // namespace dtorch::cli
