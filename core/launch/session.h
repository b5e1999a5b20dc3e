// What `run` and `launch` share: a job's tag, its scratch folder, its agent, and calls of the agent that keep watching.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/listen.h"
#include "core/launch/agent_process.h"
#include "core/launch/event_loop.h"
#include "core/launch/signals.h"
#include "core/launch/supervisor.h"

namespace dtorch {

/** Thrown inside run_job and launch_program when the supervisor has found a first cause or was asked to stop. */
struct JobEnded {};

/** A node's part of a job: everything with a lifetime, in the order in which it must go. */
class Session {
 public:
  struct Settings {
    std::string executable;
    bool scratch = false;  ///< the job wants a folder for small files
    bool control = true;
    std::chrono::milliseconds grace{5'000};
    std::chrono::milliseconds stall_limit{1'800'000};  ///< how long a process may stand stopped
  };
  Session(const Settings& settings, JobObserver& observer);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /** Binds the store's socket. Call before start_agent. */
  void listen(const Endpoint& endpoint) { listener_ = listen_on(endpoint, Foreign::refuse); }
  int store_port() const { return listener_.port; }
  void start_agent();
  /** Has the agent serve the store on the socket that listen() bound; does not wait for it. */
  void serve_store();
  /** Whether serve_store() was called, or is not needed. */
  bool serving() const { return !listener_.socket.valid(); }
  /** Whether a connection waits on the store's socket. */
  bool store_wanted() const;
  /** A new supervisor, for a first or a further attempt. */
  void begin_attempt();

  /**
   * Asks the agent and pumps until it answers. Throws JobEnded when the job ends meanwhile, the Error of a failure answer,
   * Error(timeout) naming `what` after `limit` without the answer or a log line of the agent.
   */
  nlohmann::json call(const nlohmann::json& request, std::chrono::milliseconds limit,
                      const std::string& what);
  /** Pumps once. Throws JobEnded when the job ends. */
  void pump(Deadline deadline);

  Supervisor& supervisor() { return *supervisor_; }
  AgentProcess& agent() { return *agent_; }
  const std::string& tag() const { return tag_; }
  /** The scratch folder in $TMPDIR or /tmp; exists from start_agent() on if the settings want it, and is removed in the end,
   * whatever happens. */
  const std::string& scratch() const { return scratch_; }

 private:
  Settings settings_;
  JobObserver& observer_;
  std::string tag_;
  std::string scratch_;
  SignalWatch signals_;
  EventLoop loop_;
  Listener listener_;
  std::unique_ptr<AgentProcess> agent_;
  std::unique_ptr<Supervisor> supervisor_;
};

/** Makes the folder and its parents; nothing for an empty name. Throws Error(cannot_create). */
void make_folder(const std::string& folder, const std::string& help = {});
/** The Error that a failure answer or message stands for. */
Error error_of(const Failure& failure);

}  // namespace dtorch
