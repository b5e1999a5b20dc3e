// The launcher's side of its helper process; see agent.h for what they say to each other.
#pragma once
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/channel.h"
#include "core/base/error.h"
#include "core/launch/event_loop.h"
#include "core/launch/spawn.h"

namespace dtorch {

/**
 * A running agent. From its construction on, the ranks named by guard() die with this process. libtorch is loaded only when
 * the first request comes. Not thread-safe; lives on the event loop's thread.
 */
class AgentProcess {
 public:
  struct Settings {
    std::string executable;    ///< run as `EXE __agent ...`
    std::string tag;           ///< the job's, see cleanup.h
    std::string scratch;       ///< folder that goes with the job, if there is one
    std::vector<int> inherit;  ///< descriptors that requests will name
  };
  using Answer = std::function<void(const nlohmann::json&)>;

  AgentProcess(EventLoop& loop, const Settings& settings);
  ~AgentProcess();
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  /** The group is killed should this process die. */
  void guard(pid_t group);
  void release(pid_t group);
  /** Sends a request; `answer` is called from the loop, or never if the agent dies. */
  void request(nlohmann::json message, Answer answer);

  std::function<void(const nlohmann::json&)> on_message;  ///< what is not an answer: "log"
  /** Called once: "was killed by SIGKILL"; kind lost, or os_resource where memory ran out. */
  std::function<void(ErrorKind kind, const std::string& how)> on_death;
  pid_t pid() const { return process_.pid(); }
  /** Its processes, as far as they have told: the watchdog, and the helper that serves. */
  std::vector<pid_t> pids() const;
  /** Ends it at once. on_death is not called. */
  void end();

 private:
  void order(const std::string& line);
  void read_channel();
  void died();

  EventLoop& loop_;
  ChildProcess process_;
  Fd orders_;
  std::optional<Channel> channel_;
  std::map<std::int64_t, Answer> waiting_;
  std::int64_t next_id_ = 1;
  pid_t helper_ = -1;
};

}  // namespace dtorch
