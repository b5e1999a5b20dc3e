#include "cli/run_view.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/exit_codes.h"
#include "cli/failure_text.h"
#include "core/base/json_text.h"
#include "core/base/units.h"
#include "core/report/text.h"

namespace dtorch {
namespace {

using nlohmann::json;

std::string member_text(const json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

/** A plan for people: "key: value" lines, objects indented. Whatever the plan holds is shown. */
void add_plan_lines(const json& plan, const std::string& indent, std::string& text) {
  for (const auto& [key, value] : plan.items()) {
    if (value.is_object()) {
      text += fmt::format("{}{}:\n", indent, key);
      add_plan_lines(value, indent + "  ", text);
    } else if (value.is_array() && !value.empty() && value[0].is_structured()) {
      text += fmt::format("{}{}:\n", indent, key);
      for (const json& item : value)
        text += fmt::format("{}  - {}\n", indent, report::printable(member_text(item)));
    } else {
      text += fmt::format("{}{}: {}\n", indent, key, report::printable(member_text(value)));
    }
  }
}

std::string text_member(const json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string warning_mark(bool colour) { return colour ? "\x1b[1;33mwarning:\x1b[0m " : "warning: "; }

}  // namespace

RunView::RunView(RunViewOptions options)
    : options_(std::move(options)),
      out_(options_.out_fd, "standard output"),
      err_(options_.err_fd, "standard error"),
      board_(options_.job, options_.world_size, options_.backend, options_.dataset),
      last_line_(Clock::now()) {
  if (options_.style.progress == Progress::board && !options_.dry_run) {
    live_ = std::make_unique<LiveBoard>(
        err_, [this](BoardSize size) { return board_.render(size, options_.style.stderr_colour); });
  }
}

RunView::~RunView() = default;

void RunView::describe(const RunViewOptions& job) {
  options_.job = job.job;
  options_.world_size = job.world_size;
  options_.backend = job.backend;
  options_.dataset = job.dataset;
  options_.interval = job.interval;
  board_ = Board(job.job, job.world_size, job.backend, job.dataset);
}

void RunView::event(const char* name, const json& members) {
  if (!options_.style.json) return;
  json line = members;
  line.erase("type");
  line["event"] = name;
  out_.write(json_text(line) + "\n");
}

void RunView::say(const std::string& line) {
  if (live_) {
    live_->print_above(line);
  } else {
    err_.write(line + "\n");
  }
}

void RunView::say_warning(const std::string& text) {
  say(warning_mark(options_.style.stderr_colour) + report::printable(text));
}

void RunView::tell_left_out(bool at_the_end) {
  if (steps_left_out_ > 0 && (at_the_end || !out_.congested())) {
    event("left_out", {{"steps", steps_left_out_}});
    say_warning(fmt::format("{} step records were left out of standard output, which was not read",
                            std::exchange(steps_left_out_, 0)));
  }
  if (lines_left_out_ > 0 && (at_the_end || !congested())) {
    say_warning(fmt::format("{} log lines were left out while the terminal was paused",
                            std::exchange(lines_left_out_, 0)));
  }
}

void RunView::say_progress(const std::string& line) {
  if (options_.style.progress == Progress::plain) say(line);
}

void RunView::plan(const json& plan) {
  const json dataset = plan.is_object() && plan.contains("dataset") ? plan["dataset"] : json();
  const std::string used = dataset.is_string() ? dataset.get<std::string>() : text_member(dataset, "type");
  if (const std::string backend = text_member(plan, "backend"); !backend.empty()) options_.backend = backend;
  if (!used.empty()) options_.dataset = used;
  board_.describe(options_.backend, options_.dataset);
  event("plan", plan.is_object() ? plan : json{{"plan", plan}});
  if (options_.dry_run && !options_.style.json) {
    std::string text;
    add_plan_lines(plan, "", text);
    out_.write(text);
  } else if (!options_.dry_run) {
    say_progress(fmt::format("{}: {} rank{}, {}, {}", options_.job, options_.world_size,
                             options_.world_size == 1 ? "" : "s", options_.backend, options_.dataset));
  }
}

void RunView::phase(int rank, const std::string& phase) { board_.phase(rank, phase); }

void RunView::step(const StepRecord& record) {
  board_.update(record);
  if (options_.style.json && out_.congested()) {
    ++steps_left_out_;
  } else {
    event("step", record);
  }
}

void RunView::epoch(const EpochRecord& record) {
  board_.update(record);
  event("epoch", record);
  say_progress(board_.epoch_line(record));
}

void RunView::eval(const EvalRecord& record) {
  board_.update(record);
  event("eval", record);
  say_progress(board_.eval_line(record));
}

void RunView::result(const ResultRecord& record) { result_ = record; }

void RunView::log(int rank, const std::string& level, const std::string& text) {
  const bool warning = level == "warning";
  if (options_.style.quiet && !warning) return;
  if (congested()) {
    ++lines_left_out_;
    return;
  }
  const std::string who = rank >= 0 ? fmt::format("[rank {}] ", rank) : "";
  const std::string mark = warning ? warning_mark(options_.style.stderr_colour) : "";
  say(fmt::format("{}{}{}", who, mark, report::printable(text)));
}

void RunView::output(int rank, bool /*is_stderr*/, const std::string& line) {
  // stdout carries results: what a rank prints goes to stderr, whichever it wrote to.
  if (options_.show_output) say(fmt::format("[rank {}] {}", rank, report::printable(line)));
}

void RunView::tick() {
  if (live_) live_->draw();
  tell_left_out(/*at_the_end=*/false);
  if (const auto error = out_.failure(); error && !std::exchange(told_of_failure_, true))
    say_warning(fmt::format("{}; the job goes on", error->what()));
  const auto now = Clock::now();
  const bool quiet = options_.style.progress != Progress::plain || options_.dry_run;
  if (quiet || congested() || now - last_line_ < options_.interval) return;
  last_line_ = now;
  std::string line = board_.plain_line();
  if (line == last_text_) return;
  say(line);
  last_text_ = std::move(line);
}

void RunView::print_result(const ResultRecord& record) {
  const std::string text = fmt::format(
      "test accuracy  {:.2f}%\n"
      "loss           {}\n"
      "samples/s      {:.0f}\n"
      "time           {}\n"
      "job            {}, {} epoch{}, {} steps, {} rank{}, {}, {}\n",
      record.test_accuracy * 100, report::loss_text(record.loss), record.samples_per_s,
      human_duration(record.seconds), report::printable(options_.job), record.epochs,
      record.epochs == 1 ? "" : "s", record.steps, record.world_size, record.world_size == 1 ? "" : "s",
      report::printable(record.backend), report::printable(record.dataset));
  out_.write(text);
}

int RunView::finish(const JobOutcome& outcome) {
  if (live_) {
    live_->finish();
    live_.reset();
  }
  err_.flush();  // the last figures come before the result where both go to one terminal
  tell_left_out(/*at_the_end=*/true);
  if (outcome.failure) {
    event("error", error_event(*outcome.failure, outcome.tail));
  } else if (result_) {
    event("result", *result_);
    if (!options_.style.json) print_result(*result_);
  }
  out_.flush();
  const auto unwritten = out_.failure();
  if (unwritten) err_.write(failure_text(to_failure(*unwritten), {}, options_.style.stderr_colour));
  if (outcome.failure) err_.write(failure_text(*outcome.failure, outcome.tail, options_.style.stderr_colour));
  err_.flush();
  if (outcome.failure) return exit_code(*outcome.failure);
  return unwritten ? exit_code(unwritten->kind()) : 0;
}

}  // namespace dtorch
