#include "core/engine/sinks.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/json_text.h"
#include "core/base/log.h"

namespace dtorch::engine {
namespace {

template <typename Record>
nlohmann::json message(const char* type, const Record& record) {
  nlohmann::json json = record;
  json["type"] = type;
  return json;
}

}  // namespace

std::string hex_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0x0.0p+0" : "0x0.0p+0";
  char text[64];
  std::snprintf(text, sizeof text, "%.13a", value);
  return text;
}

LossesFile::LossesFile(const std::string& path, int rank) : path_(fmt::format("{}.{}", path, rank)) {
  file_.reset(std::fopen(path_.c_str(), "we"));
  if (!file_) throw Error(ErrorKind::cannot_create, fmt::format("{}: {}", path_, errno_text("open", errno)));
}

void LossesFile::check(bool fine) const {
  if (!fine) throw Error(ErrorKind::cannot_write, fmt::format("{}: {}", path_, errno_text("write", errno)));
}

void LossesFile::add(double loss) { check(std::fprintf(file_.get(), "%s\n", hex_float(loss).c_str()) > 0); }

void LossesFile::close() {
  if (file_) check(std::fclose(file_.release()) == 0);
}

void print_result(const std::string& text) {
  const bool fine = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (fine || errno == EPIPE) return;
  throw Error(ErrorKind::cannot_write, errno_text("cannot write to standard output", errno));
}

void print_event(const char* name, nlohmann::json members) {
  members.erase("type");
  members["event"] = name;
  print_result(json_text(members) + "\n");
}

RankSink::RankSink(RankControl& control, std::unique_ptr<LossesFile> losses, bool json)
    : control_(control), losses_(std::move(losses)), json_(json) {}

void RankSink::phase(const std::string& phase) { control_.send({{"type", "phase"}, {"phase", phase}}); }

void RankSink::step(const StepRecord& record) {
  if (control_.connected()) return control_.offer(message("step", record));
  if (json_) print_event("step", record);
}

void RankSink::loss(double loss) {
  if (losses_) losses_->add(loss);
}

void RankSink::epoch(const EpochRecord& record) {
  if (control_.connected()) return control_.send(message("epoch", record));
  if (json_) print_event("epoch", record);
  log_info(fmt::format("epoch {}: loss {:.4f}, {:.0f} samples/s, {:.1f} s", record.epoch + 1, record.loss,
                       record.samples_per_s, record.seconds));
}

void RankSink::eval(const EvalRecord& record) {
  if (control_.connected()) return control_.send(message("eval", record));
  if (json_) print_event("eval", record);
  log_info(fmt::format("epoch {}: test accuracy {:.2f}%, loss {:.4f}", record.epoch + 1,
                       record.accuracy * 100, record.loss));
}

void RankSink::result(const ResultRecord& record) {
  if (control_.connected()) return control_.send(message("result", record));
  if (json_) return print_event("result", record);
  print_result(
      fmt::format("test_accuracy {:.4f} loss {:.4f} samples_per_s {:.0f} seconds {:.1f} world_size {} "
                  "backend {} dataset {}\n",
                  record.test_accuracy, record.loss, record.samples_per_s, record.seconds, record.world_size,
                  record.backend, record.dataset));
}

void RankSink::close() {
  if (losses_) losses_->close();
}

}  // namespace dtorch::engine
