// What the supervisor knows of one rank; for its own files.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/channel.h"
#include "core/launch/output.h"
#include "core/launch/supervisor.h"

namespace dtorch {

struct Supervisor::Rank {
  RankStart start;
  ChildProcess process;
  std::optional<Channel> channel;
  std::unique_ptr<RankOutput> output;
  std::optional<Failure> reported;
  std::int64_t step = -1;
  bool guarded = false;     ///< the agent would kill its group
  bool reap_later = false;  ///< it has ended, but a debugger has it still
};

}  // namespace dtorch
