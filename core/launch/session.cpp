#include "core/launch/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "core/base/host.h"
#include "core/launch/cleanup.h"

namespace dtorch {

namespace {

/** Named after the job alone, so that the watchdog can know it before it is made. A job inside a job has its folder
 * inside the other's, whose watchdog ends and removes all of it. */
std::string scratch_name(const std::string& tag) {
  const char* folder = std::getenv("TMPDIR");
  return fmt::format("{}/dtorch.{}", folder != nullptr && *folder != '\0' ? folder : "/tmp", tag);
}

}  // namespace

Session::Session(const Settings& settings, JobObserver& observer)
    : settings_(settings), observer_(observer), tag_(make_job_tag()), scratch_(scratch_name(tag_)) {
  begin_attempt();
}

Session::~Session() {
  supervisor_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(scratch_, ignored);
}

void Session::begin_attempt() {
  supervisor_.reset();
  supervisor_ = std::make_unique<Supervisor>(
      loop_, signals_, observer_,
      SupervisorSettings{host_name(), tag_, settings_.control, settings_.grace, settings_.stall_limit});
  if (agent_) supervisor_->use_agent(*agent_);
}

void Session::start_agent() {
  AgentProcess::Settings agent{settings_.executable, tag_, scratch_, {}};
  if (listener_.socket.valid()) agent.inherit.push_back(listener_.socket.get());
  agent_ = std::make_unique<AgentProcess>(loop_, agent);
  supervisor_->use_agent(*agent_);
  // Only now is there somebody who removes it should this process be killed.
  if (!settings_.scratch) return;
  const std::string help = "set TMPDIR to a folder that can be written";
  make_folder(std::filesystem::path(scratch_).parent_path(), help);
  if (::mkdir(scratch_.c_str(), 0700) != 0)
    throw Error(ErrorKind::cannot_create,
                errno_text(fmt::format("cannot make the folder {}", scratch_), errno), help);
}

void Session::serve_store() {
  if (!listener_.socket.valid()) return;
  agent_->request({{"type", "serve"}, {"fd", listener_.socket.get()}}, [this](const nlohmann::json& answer) {
    if (answer.value("type", "") == "failure") supervisor_->fail(answer.get<Failure>());
  });
  // Only the agent holds it now: if the agent dies, connections are refused instead of left hanging.
  listener_.socket.reset();
}

bool Session::store_wanted() const {
  pollfd entry{listener_.socket.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void Session::pump(Deadline deadline) {
  supervisor_->pump(deadline);
  if (supervisor_->cause() || supervisor_->stop_signal() != 0) throw JobEnded();
}

nlohmann::json Session::call(const nlohmann::json& request, std::chrono::milliseconds limit,
                             const std::string& what) {
  auto answer = std::make_shared<std::optional<nlohmann::json>>();
  agent_->request(request, [answer](const nlohmann::json& message) { *answer = message; });
  const auto asked = supervisor_->awake();
  while (!*answer) {
    // Answers to others' questions (is there a failure of another node?) come all the time.
    if (supervisor_->awake() - std::max(asked, supervisor_->last_agent_log()) > limit) {
      throw Error(ErrorKind::timeout, fmt::format("{} said nothing for {} s", what,
                                                  std::chrono::duration<double>(limit).count()));
    }
    pump(Deadline::after(limit));
  }
  if ((*answer)->value("type", "") == "failure") throw error_of((*answer)->get<Failure>());
  return **answer;
}

void make_folder(const std::string& folder, const std::string& help) {
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    throw Error(ErrorKind::cannot_create,
                fmt::format("cannot make the folder {}: {}", folder, error.message()), help);
}

Error error_of(const Failure& failure) { return Error(failure.kind, failure.message, failure.help); }

}  // namespace dtorch
