// Watches the local ranks of a job and ends them all on the first failure or on request.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/channel.h"
#include "core/launch/agent_process.h"
#include "core/launch/event_loop.h"
#include "core/launch/first_cause.h"
#include "core/launch/launcher.h"
#include "core/launch/oom.h"
#include "core/launch/output.h"
#include "core/launch/signals.h"
#include "core/launch/spawn.h"
#include "core/launch/stopped_watch.h"

namespace dtorch {

struct SupervisorSettings {
  std::string host;     ///< named in reports
  std::string tag;      ///< the job's, see cleanup.h
  bool control = true;  ///< ranks have a control channel (run); false: any program (launch)
  std::chrono::milliseconds grace{5'000};            ///< from a stop request until ranks are ended
  std::chrono::milliseconds stall_limit{1'800'000};  ///< how long a process may stand stopped by a signal
};

/** One rank to start. The supervisor adds the pipes and the control channel. */
struct RankStart {
  int rank = 0;
  SpawnRequest process;
  std::string control_option;  ///< with a control channel: argument that precedes its descriptor's number
  std::string log_file;        ///< empty: none
  std::string error_file;      ///< TORCHELASTIC_ERROR_FILE, read when the rank fails; empty: none
};

/**
 * The ranks of this node. Everything happens inside pump(): it waits, reads, finds the first cause and escalates (abort,
 * SIGTERM, SIGKILL), so that all ranks have ended 0.7 s after the first failure at the latest; a process that even SIGKILL
 * does not end (it waits for a device) is left behind after some seconds, with a warning. One thread.
 *
 * After a stop request what ranks say of it, and of each other's going, is no failure; one that crashes, or fails for a
 * reason of its own, is: its code then is the job's, not 130.
 */
class Supervisor {
 public:
  Supervisor(EventLoop& loop, SignalWatch& signals, JobObserver& observer, SupervisorSettings settings);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /** Ranks are guarded by this agent, whose log and death are the job's. It must outlive the supervisor. */
  void use_agent(AgentProcess& agent);
  /** Starts a rank. Throws like spawn() and RankOutput. */
  void start(RankStart rank);
  void set_grace(std::chrono::milliseconds grace) { settings_.grace = grace; }
  void set_stall_limit(std::chrono::milliseconds limit) { settings_.stall_limit = limit; }
  /** A message to every rank that still runs. */
  void tell_all(const nlohmann::json& message);
  /** Ends the job for a reason that no local rank gave (another node, the set-up). The first reason is kept. */
  void fail(const Failure& failure);

  /** Asks the job to stop, as that signal to this process would; `where` ("on node 1 (beta)") tells whose wish it is. */
  void stop(int signal, const std::string& where);

  /** Called once when the first cause is settled; not for stops on request. */
  std::function<void(const Failure&)> on_cause;

  /** Waits for events until the deadline, at most about 100 ms, and handles them. */
  void pump(Deadline deadline);
  /** The first cause, once it is settled; a stop request counts when ranks are told to end because of it. */
  const std::optional<Failure>& cause() const { return cause_; }
  /** The signal that asked the job to stop, or 0. */
  int stop_signal() const { return stop_signal_; }
  /** Time that this process was awake, and when on that clock the agent last sent a log line. */
  std::chrono::milliseconds awake() const { return awake_.now(); }
  std::chrono::milliseconds last_agent_log() const { return last_agent_log_; }
  /** All ranks have ended and, if any failed, the first cause is settled. */
  bool over() const { return all_ended() && (cause_ || evidence_.empty()); }
  /** Ends whatever is left, reads the last output, and says how it went. */
  JobOutcome finish();

 private:
  struct Rank;

  bool all_ended() const;
  void on_signal();
  void on_exit(Rank& rank);
  void on_channel(Rank& rank);
  void on_output(Rank& rank, bool is_stderr);
  void watch_output(Rank& rank);
  void resume_output();
  void on_message(Rank& rank, const nlohmann::json& message);
  void explain_exit(Rank& rank, const ExitStatus& status);
  void add_failure(const Failure& failure, Evidence evidence);
  void tick();
  void release_group(Rank& rank);
  void look_for_stopped();
  void give_up();
  void settle();
  void begin_ending();
  void escalate();
  void signal_running(int number);
  void note_stopped_ranks(Failure& failure) const;
  void conclude(JobOutcome& outcome) const;
  Clock::time_point next_event(Deadline deadline) const;

  EventLoop& loop_;
  SignalWatch& signals_;
  JobObserver& observer_;
  SupervisorSettings settings_;
  AgentProcess* agent_ = nullptr;
  OomWatch oom_;
  std::map<int, std::unique_ptr<Rank>> ranks_;
  FirstCause evidence_;
  std::optional<Failure> cause_;
  int stop_signal_ = 0;
  bool got_result_ = false;
  bool output_paused_ = false;
  bool ending_ = false;
  bool given_up_ = false;  ///< on what is left
  AwakeClock awake_;
  StoppedWatch stopped_;
  std::chrono::milliseconds last_agent_log_{};
  Clock::time_point next_tick_;
  // When each step of ending is due; nothing: done, or not begun.
  std::optional<Clock::time_point> stop_by_, abort_at_, terminate_at_, kill_at_, give_up_at_;
};

}  // namespace dtorch
