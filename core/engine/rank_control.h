// A rank's side of the control channel: a thread that obeys the launcher, and the way back to it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>

#include "core/base/channel.h"
#include "core/comm/process_group.h"
#include "core/engine/log_forward.h"

namespace dtorch::engine {

/**
 * With a channel a thread answers stop, abort and dump, and
 * log lines go to the launcher; when the launcher vanishes that counts as an abort. After an abort the main
 * thread has kAbortGrace to end by itself, then the process exits. Without a channel SIGTERM and SIGINT ask
 * for a stop (a second one kills).
 */
class RankControl {
 public:
  static constexpr std::chrono::milliseconds kAbortGrace{300};

  explicit RankControl(int control_fd);
  ~RankControl();
  RankControl(const RankControl&) = delete;
  RankControl& operator=(const RankControl&) = delete;

  bool connected() const { return channel_ != nullptr; }
  /** Any thread; does nothing without a channel or when the launcher has gone. */
  void send(const nlohmann::json& message);
  /** The same for what may be left out while the launcher does not read; never blocks. */
  void offer(const nlohmann::json& message);
  /** From now on abort reaches this group, and dump tells of it. */
  void watch(const ProcessGroupPtr& group);
  /** Why the launcher told this rank to end, if it has. */
  std::optional<std::string> abort_reason() const;

  const std::atomic<bool>& stop_requested() const;
  /** The signal that asked this process for a stop, or 0. */
  int stop_signal() const;
  std::atomic<std::int64_t>& step() { return step_; }

 private:
  void listen();
  void handle(const nlohmann::json& message);
  void abort(const std::string& reason);
  void dump();

  std::unique_ptr<Channel> channel_;
  std::unique_ptr<LogForward> log_forward_;
  std::atomic<std::int64_t> step_{-1};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::weak_ptr<ProcessGroup> group_;        // guarded by mutex_
  std::optional<std::string> abort_reason_;  // guarded by mutex_
  bool ended_ = false;                       // guarded by mutex_
  std::thread listener_;
};

}  // namespace dtorch::engine
