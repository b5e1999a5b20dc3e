// Log lines of a helper process go to its launcher, which prints.
#pragma once
#include "core/base/channel.h"

namespace dtorch::engine {

/** Sends log lines over the channel, which must outlive this; when destroyed they go to stderr again. */
class LogForward {
 public:
  explicit LogForward(Channel& channel);
  ~LogForward();
  LogForward(const LogForward&) = delete;
  LogForward& operator=(const LogForward&) = delete;
};

}  // namespace dtorch::engine
