// How a supervisor ends its ranks, and what it says of it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "core/launch/cleanup.h"
#include "core/launch/explain.h"
#include "core/launch/supervisor_rank.h"

namespace dtorch {
namespace {

using std::chrono::milliseconds;

// How ending goes on, counted from the moment the ranks are told to abort.
constexpr milliseconds kUntilTerminate(150);
constexpr milliseconds kUntilKill(350);
/** Programs that have no control channel are told by SIGTERM alone. */
constexpr milliseconds kProgramUntilKill(500);
/** How long ranks may take to answer "dump" before they are told to abort. */
constexpr milliseconds kDumpTime(200);
/** What a rank left running behind may take to end by itself after a job that went well. */
constexpr milliseconds kLingering(200);
constexpr milliseconds kReapTime(2'000);
/** What a killed process may take to go. */
constexpr milliseconds kUntilGivenUp(5'000);

/** Takes a due time out. */
bool due(std::optional<Clock::time_point>& at) {
  if (!at || Clock::now() < *at) return false;
  at.reset();
  return true;
}

}  // namespace

void Supervisor::settle() {
  if (cause_ || evidence_.empty() || Clock::now() < evidence_.due()) return;
  cause_ = evidence_.failure();
  if (cause_->kind == ErrorKind::timeout) note_stopped_ranks(*cause_);
  if (on_cause) on_cause(*cause_);
  begin_ending();
}

void Supervisor::begin_ending() {
  if (std::exchange(ending_, true)) return;
  const auto now = Clock::now();
  stop_by_.reset();
  if (!settings_.control) {
    terminate_at_ = now;
    kill_at_ = now + kProgramUntilKill;
    return;
  }
  abort_at_ = now;
  if (cause_->kind == ErrorKind::timeout) {
    tell_all({{"type", "dump"}});
    abort_at_ = now + kDumpTime;
  }
  terminate_at_ = *abort_at_ + kUntilTerminate;
  kill_at_ = *abort_at_ + kUntilKill;
}

void Supervisor::escalate() {
  if (due(stop_by_) && !all_ended()) {
    const auto seconds = std::chrono::duration<double>(settings_.grace).count();
    cause_ = interrupted_failure(stop_signal_, settings_.host,
                                 fmt::format("ranks that did not stop in {} s were killed", seconds));
    begin_ending();
  }
  if (due(abort_at_)) tell_all({{"type", "abort"}, {"reason", cause_->message}});
  if (due(terminate_at_)) signal_running(SIGTERM);
  if (due(kill_at_)) {
    for (const auto& [number, rank] : ranks_) rank->process.signal_group(SIGKILL);
    give_up_at_ = Clock::now() + kUntilGivenUp;
  }
  if (due(give_up_at_) && !all_ended()) give_up();
}

void Supervisor::give_up() {
  for (const auto& [number, rank] : ranks_) {
    if (!rank->process.running()) continue;
    const pid_t pid = rank->process.pid();
    observer_.log(-1, "warning",
                  fmt::format("rank {} (pid {}) was killed but does not go: {}; it is left behind", number,
                              pid, why_it_stays(pid)));
  }
  given_up_ = true;
}

void Supervisor::signal_running(int number) {
  for (const auto& [rank_number, rank] : ranks_) {
    if (rank->process.running()) rank->process.signal_group(number);
  }
}

void Supervisor::note_stopped_ranks(Failure& failure) const {
  for (const auto& [number, rank] : ranks_) {
    if (!rank->process.running() || !is_stopped(rank->process.pid())) continue;
    failure.message += fmt::format("; rank {} (pid {}) is stopped by a signal", number, rank->process.pid());
    if (std::find(failure.missing_ranks.begin(), failure.missing_ranks.end(), number) ==
        failure.missing_ranks.end()) {
      failure.missing_ranks.push_back(number);
    }
    failure.help =
        fmt::format("continue it with kill -CONT {}, or find out who stopped it", rank->process.pid());
  }
}

JobOutcome Supervisor::finish() {
  JobOutcome outcome;
  if (ranks_.empty() && !cause_ && evidence_.empty() && stop_signal_ == 0) return outcome;
  const bool well = all_ended() && !cause_;
  const auto group_left = [&] {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const auto& entry) { return entry.second->process.group_exists(); });
  };
  const Deadline patience = Deadline::after(well ? kLingering : milliseconds(0));
  while (group_left() && !patience.expired()) std::this_thread::sleep_for(milliseconds(5));

  for (const auto& [number, rank] : ranks_) rank->process.signal_group(SIGKILL);
  const Deadline reaped = Deadline::after(kReapTime);
  std::set<pid_t> groups;
  for (const auto& [number, rank] : ranks_) {
    while (!rank->process.try_wait() && !reaped.expired()) std::this_thread::sleep_for(milliseconds(1));
    if (rank->process.group_exists()) groups.insert(rank->process.pid());
    loop_.forget(rank->process.pidfd());
    if (rank->channel) loop_.forget(rank->channel->fd());
    for (const bool is_stderr : {false, true}) loop_.forget(rank->output->reader(is_stderr));
  }
  kill_job(groups, settings_.tag, reaped);
  for (const auto& [number, rank] : ranks_) {
    rank->output->finish();
    if (std::exchange(rank->guarded, false)) agent_->release(rank->process.pid());
  }
  conclude(outcome);
  ranks_.clear();
  return outcome;
}

void Supervisor::conclude(JobOutcome& outcome) const {
  outcome.failure = cause_;
  if (!cause_ && !evidence_.empty()) outcome.failure = evidence_.failure();
  const bool asked =
      stop_signal_ != 0 && (!outcome.failure || outcome.failure->kind == ErrorKind::interrupted);
  if (cause_ && !asked) {  // survivors may have told since then in which collective they waited
    const Failure later = evidence_.failure();
    if (outcome.failure->collective.empty()) outcome.failure->collective = later.collective;
    outcome.failure->step = std::max(outcome.failure->step, later.step);
  }
  if (asked && !got_result_) {
    if (!cause_)
      outcome.failure = interrupted_failure(stop_signal_, settings_.host, "all ranks have stopped");
    outcome.program_code = 128 + stop_signal_;
    for (const auto& [number, rank] : ranks_) {
      if (rank->reported && rank->reported->kind == ErrorKind::stopped) outcome.failure = rank->reported;
      outcome.failure->step = std::max(outcome.failure->step, rank->step);
    }
  } else if (asked) {
    outcome.failure.reset();
  }
  for (const auto& [number, rank] : ranks_) {
    if (outcome.failure || rank->output->log_failure().empty()) continue;
    outcome.failure = Failure();
    outcome.failure->kind = ErrorKind::cannot_write;
    outcome.failure->host = settings_.host;
    outcome.failure->message = rank->output->log_failure();
    return;
  }
  if (!outcome.failure || asked) return;
  outcome.program_code =
      ExitStatus{std::max(outcome.failure->exit_code, 0), outcome.failure->signal}.shell_code();
  const auto found = ranks_.find(outcome.failure->rank);
  if (found != ranks_.end()) outcome.tail = found->second->output->tail();
}

}  // namespace dtorch
