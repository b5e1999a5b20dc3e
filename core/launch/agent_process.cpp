#include "core/launch/agent_process.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>

#include "core/base/error.h"
#include "core/launch/cleanup.h"

namespace dtorch {
namespace {

/** A helper that does not read is as good as dead; see Supervisor::look_for_stopped. */
constexpr std::chrono::seconds kRequestTime(1);
constexpr std::chrono::seconds kEndTime(2);

std::vector<std::string> current_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

}  // namespace

AgentProcess::AgentProcess(EventLoop& loop, const Settings& settings) : loop_(loop) {
  auto [ours, theirs] = make_channel_pair();
  auto [orders_writer, orders_reader] = make_channel_pair();
  orders_ = std::move(orders_writer);
  const Fd launcher(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!launcher.valid()) throw Error(ErrorKind::os_resource, errno_text("pidfd_open", errno));

  SpawnRequest request;
  request.program = settings.executable;
  request.arguments = {settings.executable,
                       "__agent",
                       "--control-fd",
                       std::to_string(theirs.get()),
                       "--orders-fd",
                       std::to_string(orders_reader.get()),
                       "--launcher-pidfd",
                       std::to_string(launcher.get()),
                       "--job",
                       settings.tag,
                       "--scratch",
                       settings.scratch};
  request.environment = current_environment();
  request.inherit = settings.inherit;
  request.inherit.insert(request.inherit.end(), {theirs.get(), orders_reader.get(), launcher.get()});
  request.die_with_parent = false;
  process_ = spawn(request);
  channel_.emplace(std::move(ours));
  loop_.watch(channel_->fd(), [this] { read_channel(); });
  loop_.watch(process_.pidfd(), [this] { died(); });
}

AgentProcess::~AgentProcess() { end(); }

void AgentProcess::guard(pid_t group) { order(fmt::format("+{}\n", group)); }

void AgentProcess::release(pid_t group) { order(fmt::format("-{}\n", group)); }

void AgentProcess::order(const std::string& line) {
  // A failure means that it has died: the loop will say so.
  if (::send(orders_.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) return;
}

void AgentProcess::request(nlohmann::json message, Answer answer) {
  const std::int64_t id = next_id_++;
  message["id"] = id;
  waiting_[id] = std::move(answer);
  channel_->send(message, Deadline::after(kRequestTime));  // if it has gone, its death is seen by the loop
}

void AgentProcess::read_channel() {
  for (const auto& message : channel_->read_available()) {
    if (message.value("type", "") == "helper") {
      helper_ = message.value("pid", -1);
      continue;
    }
    const auto found = waiting_.find(message.value("id", std::int64_t{0}));
    if (found == waiting_.end()) {
      if (on_message) on_message(message);
      continue;
    }
    const Answer answer = std::move(found->second);
    waiting_.erase(found);
    answer(message);
  }
  if (channel_->closed()) loop_.forget(channel_->fd());
}

std::vector<pid_t> AgentProcess::pids() const {
  std::vector<pid_t> pids{process_.pid()};
  if (helper_ > 0) pids.push_back(helper_);
  return pids;
}

void AgentProcess::died() {
  const auto status = process_.try_wait();
  if (!status) return;
  loop_.forget(process_.pidfd());
  loop_.forget(channel_->fd());
  if (!on_death) return;
  // Its outer half says as a shell would what has become of the inner one.
  const int signal = status->signal != 0 ? status->signal : std::max(status->code - 128, 0);
  if (signal != 0) return on_death(ErrorKind::lost, fmt::format("was killed by {}", signal_name(signal)));
  if (status->code == EX_OSERR) return on_death(ErrorKind::os_resource, "ran out of memory");
  on_death(ErrorKind::lost, fmt::format("ended with code {}", status->code));
}

void AgentProcess::end() {
  if (process_.pid() <= 0) return;
  loop_.forget(process_.pidfd());
  loop_.forget(channel_->fd());
  // The watchdog ends last, so that nothing of the helper is left, its sockets neither, when this returns.
  order(fmt::format("{}\n", kDismissal));
  const Deadline deadline = Deadline::after(kEndTime);
  while (!process_.try_wait() && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  process_.signal_group(SIGKILL);
  process_.try_wait();
  process_ = ChildProcess();
}

}  // namespace dtorch
