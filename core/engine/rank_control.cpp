#include "core/engine/rank_control.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/comm/stack.h"
#include "core/comm/stall_dump.h"

namespace dtorch::engine {
namespace {

std::atomic<bool> stop_flag{false};
std::atomic<int> stop_number{0};

void on_stop_signal(int number) {
  stop_number = number;
  stop_flag = true;
}

void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);  // the second one kills
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

RankControl::RankControl(int control_fd) {
  stop_flag = false;
  if (control_fd < 0) {
    stop_on_signals();
    return;
  }
  channel_ = std::make_unique<Channel>(Fd(control_fd));
  log_forward_ = std::make_unique<LogForward>(*channel_);
  listener_ = std::thread([this] { listen(); });
}

RankControl::~RankControl() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (channel_) ::shutdown(channel_->fd(), SHUT_RD);  // wakes the listener
  if (listener_.joinable()) listener_.join();
}

void RankControl::send(const nlohmann::json& message) {
  if (channel_) channel_->send(message);
}

void RankControl::offer(const nlohmann::json& message) {
  if (channel_) channel_->offer(message);
}

void RankControl::watch(const ProcessGroupPtr& group) {
  std::optional<std::string> aborted;
  {
    const std::lock_guard lock(mutex_);
    group_ = group;
    aborted = abort_reason_;
  }
  if (aborted && group) group->abort(*aborted);
}

std::optional<std::string> RankControl::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return abort_reason_;
}

const std::atomic<bool>& RankControl::stop_requested() const { return stop_flag; }

int RankControl::stop_signal() const { return stop_number; }

void RankControl::listen() {
  try {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (ended_) return;
      }
      if (const auto message = channel_->receive(Deadline::after(std::chrono::hours(1)))) handle(*message);
    }
  } catch (const std::exception&) {
    abort("the launcher is gone");
  }
}

void RankControl::handle(const nlohmann::json& message) {
  const auto type = message.value("type", "");
  if (type == "stop") stop_flag = true;
  if (type == "abort") abort(message.value("reason", "the launcher ended the job"));
  if (type == "dump") dump();
}

void RankControl::abort(const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (ended_) return;
  abort_reason_ = reason;
  const auto group = group_.lock();
  lock.unlock();
  if (group) group->abort(reason);
  lock.lock();
  if (wake_.wait_for(lock, kAbortGrace, [this] { return ended_; })) return;
  std::_Exit(EX_UNAVAILABLE);  // the main thread is somewhere that cannot be interrupted; the launcher knows
                               // the cause
}

void RankControl::dump() {
  std::shared_ptr<ProcessGroup> group;
  {
    const std::lock_guard lock(mutex_);
    group = group_.lock();
  }
  // The process's id is its main thread's.
  if (group) return send(stall_dump(*group, ::getpid()));
  send({{"type", "ring"},
        {"rank", -1},
        {"ring", nlohmann::json::array()},
        {"stack", capture_stack(::getpid())}});
}

}  // namespace dtorch::engine
