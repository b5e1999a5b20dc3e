// The launcher's helper process (`dtorch __agent`): it loads libdtorch so that the launcher need not. It runs the pre-flight,
// serves the job's store on node 0 (outliving rank 0), reaches it from other nodes, and ends the ranks if the launcher dies.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/deadline.h"

namespace dtorch {

// Protocol on its control channel (launcher → agent : agent → launcher), every request with "id", every answer with the same:
//   {"type":"preflight","spec":yaml}             : {"type":"plan","plan":{...}} | {"type":"failure",...}; "log" lines meanwhile
//   {"type":"serve","fd":n}                      : {"type":"serving","port":p}       n: inherited listening socket
//   {"type":"connect","host":h,"port":p,"timeout_ms":t} : {"type":"connected"} | {"type":"failure",...}
//   {"type":"set","key":k,"value":v}             : {"type":"done"}
//   {"type":"add","key":k,"amount":n}            : {"type":"value","value":n}
//   {"type":"get","key":k,"timeout_ms":t}        : {"type":"value","value":v} | {"type":"failure",kind timeout}
//   {"type":"groups","pgids":[...]}              : (none) process groups to kill should the launcher die

/** What core/launch needs of a store; keys are the launcher's own. Calls block; Error(lost) when the store or the agent is gone. */
class LaunchStore {
 public:
  virtual ~LaunchStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  /** Waits until the key is there. Nothing at the deadline. */
  virtual std::optional<std::string> get(const std::string& key, Deadline deadline) = 0;
};

}  // namespace dtorch
