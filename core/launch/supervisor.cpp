#include "core/launch/supervisor.h"

#include <fmt/format.h>
#include <sysexits.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/launch/explain.h"
#include "core/launch/supervisor_rank.h"

namespace dtorch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick(100);
/** By how much ranks that wait for a stopped one may tell it themselves: they know in which collective. */
constexpr milliseconds kOthersFirst(2'500);
constexpr milliseconds kSendTime(1'000);

/** Whether a rank that was asked to stop says something else than that it did, or that others did. */
bool is_own_failure(const Failure& failure, Evidence evidence, bool control) {
  switch (evidence) {
    case Evidence::consequence:
    case Evidence::timed_out: return false;
    case Evidence::exited:
      return control && !asks_to_stop(failure.exit_code - 128);  // programs stop with any code
    case Evidence::killed: return !asks_to_stop(failure.signal) && failure.signal != SIGPIPE;
    case Evidence::reported: break;
  }
  const auto kind = failure.kind;
  return kind != ErrorKind::interrupted && kind != ErrorKind::stopped && kind != ErrorKind::lost &&
         kind != ErrorKind::timeout;
}

}  // namespace

Supervisor::Supervisor(EventLoop& loop, SignalWatch& signals, JobObserver& observer,
                       SupervisorSettings settings)
    : loop_(loop),
      signals_(signals),
      observer_(observer),
      settings_(std::move(settings)),
      next_tick_(Clock::now()) {
  loop_.watch(signals_.fd(), [this] { on_signal(); });
}

Supervisor::~Supervisor() {
  loop_.forget(signals_.fd());
  finish();
}

void Supervisor::use_agent(AgentProcess& agent) {
  agent_ = &agent;
  agent.on_message = [this](const nlohmann::json& message) {
    if (message.value("type", "") != "log") return;
    last_agent_log_ = awake_.now();
    observer_.log(-1, message.value("level", "info"), message.value("text", ""));
  };
  agent.on_death = [this](ErrorKind kind, const std::string& how) {
    Failure failure;
    failure.kind = kind;
    failure.host = settings_.host;
    failure.message =
        fmt::format("the job's helper process (pid {}) on {} {}", agent_->pid(), settings_.host, how);
    fail(failure);
  };
}

void Supervisor::start(RankStart start) {
  auto rank = std::make_unique<Rank>();
  Rank& entry = *rank;
  const int number = start.rank;
  entry.output = std::make_unique<RankOutput>(
      start.log_file,
      [this, number](bool is_stderr, const std::string& line) { observer_.output(number, is_stderr, line); },
      [this](const std::string& text) { observer_.log(-1, "warning", text); });
  start.process.stdout_fd = entry.output->stdout_writer();
  start.process.stderr_fd = entry.output->stderr_writer();
  Fd theirs;
  if (settings_.control) {
    auto ends = make_channel_pair();
    entry.channel.emplace(std::move(ends.first));
    theirs = std::move(ends.second);
    start.process.arguments.insert(start.process.arguments.end(),
                                   {start.control_option, std::to_string(theirs.get())});
    start.process.inherit.push_back(theirs.get());
  }
  entry.process = spawn(start.process);
  entry.output->close_writers();
  entry.start = std::move(start);
  if (agent_ != nullptr) agent_->guard(entry.process.pid());
  entry.guarded = agent_ != nullptr;
  loop_.watch(entry.process.pidfd(), [this, &entry] { on_exit(entry); });
  watch_output(entry);
  if (entry.channel) loop_.watch(entry.channel->fd(), [this, &entry] { on_channel(entry); });
  ranks_[number] = std::move(rank);
}

void Supervisor::tell_all(const nlohmann::json& message) {
  for (const auto& [number, rank] : ranks_) {
    if (rank->channel && rank->process.running()) rank->channel->send(message, Deadline::after(kSendTime));
  }
}

void Supervisor::fail(const Failure& failure) { add_failure(failure, Evidence::reported); }

void Supervisor::pump(Deadline deadline) {
  settle();
  escalate();
  loop_.wait(Deadline(next_event(deadline)));
  settle();
  escalate();
  awake_.tick();
  if (Clock::now() >= next_tick_) tick();
}

void Supervisor::tick() {
  for (const auto& [number, rank] : ranks_) {
    if (rank->reap_later) on_exit(*rank);
    release_group(*rank);
  }
  look_for_stopped();
  resume_output();
  observer_.tick();
  next_tick_ = Clock::now() + kTick;
}

/** A group that is no more must be forgotten before its number is given to somebody else's. */
void Supervisor::release_group(Rank& rank) {
  if (!rank.guarded || rank.process.running() || rank.process.group_exists()) return;
  rank.guarded = false;
  agent_->release(rank.process.pid());
}

void Supervisor::look_for_stopped() {
  if (cause_ || stop_signal_ != 0) return;
  const auto stood = [this](pid_t pid, milliseconds limit) {
    return stopped_.stopped_for(pid, awake_.now()) >= limit;
  };
  Failure failure;
  failure.kind = ErrorKind::timeout;
  failure.host = settings_.host;
  const double seconds = std::chrono::duration<double>(settings_.stall_limit).count();
  const milliseconds limit = settings_.stall_limit + (ranks_.size() > 1 ? kOthersFirst : milliseconds(0));
  for (const auto& [number, rank] : ranks_) {
    if (!settings_.control || !rank->process.running() || !stood(rank->process.pid(), limit)) continue;
    failure.rank = number;
    failure.step = rank->step;
    failure.message = fmt::format("rank {} has not gone on for {} s", number, seconds);
    return fail(failure);  // which ranks are stopped is added when the cause is settled
  }
  for (const pid_t pid : agent_ != nullptr ? agent_->pids() : std::vector<pid_t>()) {
    if (!stood(pid, settings_.stall_limit)) continue;
    failure.message =
        fmt::format("the job's helper process (pid {}) on {} is stopped by a signal, for {} s now", pid,
                    settings_.host, seconds);
    failure.help = fmt::format("continue it with kill -CONT {} in time, or find out who stopped it", pid);
    return fail(failure);
  }
}

bool Supervisor::all_ended() const {
  return given_up_ || std::none_of(ranks_.begin(), ranks_.end(),
                                   [](const auto& entry) { return entry.second->process.running(); });
}

Clock::time_point Supervisor::next_event(Deadline deadline) const {
  Clock::time_point next = std::min(deadline.at(), next_tick_);
  for (const auto& at : {stop_by_, abort_at_, terminate_at_, kill_at_, give_up_at_}) {
    if (at) next = std::min(next, *at);
  }
  if (!cause_ && !evidence_.empty()) next = std::min(next, evidence_.due());
  return next;
}

void Supervisor::on_signal() {
  for (const int number : signals_.take()) {
    if (cause_ && stop_signal_ == 0) {  // ending already
      kill_at_ = Clock::now();
    } else if (stop_signal_ == 0) {
      stop(number, "");
    } else {
      if (!cause_) cause_ = interrupted_failure(stop_signal_, settings_.host, "killed on request");
      ending_ = true;
      kill_at_ = Clock::now();
    }
  }
}

void Supervisor::watch_output(Rank& rank) {
  for (const bool is_stderr : {false, true}) {
    const int fd = rank.output->reader(is_stderr);
    if (fd >= 0) loop_.watch(fd, [this, &rank, is_stderr] { on_output(rank, is_stderr); });
  }
}

void Supervisor::resume_output() {
  if (!output_paused_ || observer_.congested()) return;
  output_paused_ = false;
  for (const auto& [number, rank] : ranks_) watch_output(*rank);
}

void Supervisor::stop(int signal, const std::string& where) {
  if (cause_ || stop_signal_ != 0) return;
  stop_signal_ = signal;
  observer_.log(-1, "info",
                fmt::format("{}{}: stopping; once more kills the job", signal_name(signal), where));
  if (settings_.control) {
    tell_all({{"type", "stop"}});
  } else {
    signal_running(signal);
  }
  stop_by_ = Clock::now() + settings_.grace;
}

void Supervisor::on_output(Rank& rank, bool is_stderr) {
  const int fd = rank.output->reader(is_stderr);
  if (observer_.congested()) {
    output_paused_ = true;
    return loop_.forget(fd);
  }
  if (!rank.output->read_available(is_stderr)) loop_.forget(fd);
}

void Supervisor::on_channel(Rank& rank) {
  try {
    for (const auto& message : rank.channel->read_available()) on_message(rank, message);
  } catch (const std::exception& error) {  // a line that is no message, or a field of the wrong type
    loop_.forget(rank.channel->fd());
    Failure failure;
    failure.kind = ErrorKind::training;
    failure.rank = rank.start.rank;
    failure.host = settings_.host;
    failure.message =
        fmt::format("rank {} sent a control message that cannot be read: {}", rank.start.rank, error.what());
    add_failure(failure, Evidence::reported);
    return;
  }
  if (rank.channel->closed()) loop_.forget(rank.channel->fd());
}

void Supervisor::on_message(Rank& rank, const nlohmann::json& message) {
  const std::string type = message.value("type", "");
  const int number = rank.start.rank;
  if (type == "step") {
    const auto record = message.get<StepRecord>();
    rank.step = record.step;
    observer_.step(record);
  } else if (type == "epoch") {
    observer_.epoch(message.get<EpochRecord>());
  } else if (type == "eval") {
    observer_.eval(message.get<EvalRecord>());
  } else if (type == "result") {
    got_result_ = true;
    observer_.result(message.get<ResultRecord>());
  } else if (type == "bench_start") {
    observer_.bench_start(message.get<BenchStart>());
  } else if (type == "bench") {
    observer_.bench_row(message.get<BenchRow>());
  } else if (type == "bench_end") {
    got_result_ = true;
  } else if (type == "log") {
    observer_.log(number, message.value("level", "info"), message.value("text", ""));
  } else if (type == "phase") {
    observer_.phase(number, message.value("phase", ""));
  } else if (type == "ring") {
    for (const auto& line : dump_lines(message)) observer_.log(number, "info", line);
  } else if (type == "failure") {
    auto failure = message.get<Failure>();
    if (failure.rank < 0) failure.rank = number;
    if (failure.host.empty()) failure.host = settings_.host;
    if (failure.step < 0) failure.step = rank.step;
    rank.reported = failure;
    Evidence evidence = Evidence::reported;
    // A lost peer is seldom the first thing that went wrong, whether the rank knows it or not.
    if (failure.kind == ErrorKind::timeout || failure.kind == ErrorKind::lost) evidence = Evidence::timed_out;
    if (failure.consequence) evidence = Evidence::consequence;
    add_failure(failure, evidence);
  }
}

void Supervisor::on_exit(Rank& rank) {
  const auto status = rank.process.try_wait();
  loop_.forget(rank.process.pidfd());
  rank.reap_later = !status;
  if (!status) return;
  release_group(rank);
  for (const bool is_stderr : {false, true}) {
    if (rank.output->reader(is_stderr) >= 0) on_output(rank, is_stderr);
  }
  if (rank.channel && !rank.channel->closed()) on_channel(rank);  // its last words
  if (status->shell_code() != 0 && !rank.reported) explain_exit(rank, *status);
  const bool result_due = rank.start.rank == 0 && settings_.control && stop_signal_ == 0;
  if (status->shell_code() != 0 || !result_due || got_result_) return;
  Failure failure;
  failure.kind = ErrorKind::lost;
  failure.rank = 0;
  failure.host = settings_.host;
  failure.step = rank.step;
  failure.message = "rank 0 ended, but its result did not reach the launcher";
  add_failure(failure, Evidence::exited);
}

void Supervisor::explain_exit(Rank& rank, const ExitStatus& status) {
  Failure failure;
  failure.kind = ErrorKind::lost;
  failure.rank = rank.start.rank;
  failure.host = settings_.host;
  failure.step = rank.step;
  failure.signal = status.signal;
  if (status.signal == 0) failure.exit_code = status.code;
  const std::string oom = status.signal == SIGKILL ? oom_.verdict(rank.process.pid()) : "";
  failure.message = exit_message(rank.start.rank, rank.process.pid(), status) + oom;
  if (settings_.control && status.signal == 0 && status.code == EX_OSERR) {
    failure.kind = ErrorKind::os_resource;
    failure.message += ": it ran out of memory";
  }
  if (!oom.empty()) failure.help = "give the job more memory, or make batches or the model smaller";
  const std::string reason = read_error_file(rank.start.error_file);
  if (!reason.empty()) failure.message += ": " + reason;
  rank.reported = failure;
  add_failure(failure, status.signal != 0 ? Evidence::killed : Evidence::exited);
}

void Supervisor::add_failure(const Failure& failure, Evidence evidence) {
  if (stop_signal_ != 0 && (ending_ || !is_own_failure(failure, evidence, settings_.control))) return;
  evidence_.add(failure, evidence, Clock::now());
}

}  // namespace dtorch
