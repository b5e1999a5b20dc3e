#include "core/engine/reporting.h"

#include <c10/util/Logging.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/engine/failure.h"
#include "core/engine/sinks.h"

namespace dtorch::engine {
namespace {

/** What cannot be written is said on stderr already. */
void print_error_event(const Failure& failure) {
  try {
    print_event("error", failure);
  } catch (const Error&) {
  }
}

}  // namespace

void quiet_libtorch() {
  ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
  c10::initLogging();  // the variable was looked at when the library was loaded
}

int run_reporting(RankControl& control, const std::function<void()>& run, const std::function<int()>& rank,
                  bool json) {
  try {
    run();
    return 0;
  } catch (...) {
    auto failure = describe_failure(std::current_exception(), control.abort_reason());
    failure.rank = rank();
    failure.step = control.step().load();
    if (failure.kind == ErrorKind::interrupted) failure.signal = control.stop_signal();
    if (control.connected()) {
      nlohmann::json message = failure;
      message["type"] = "failure";
      control.send(message);
    } else {
      print_failure(failure);
      if (json) print_error_event(failure);
    }
    write_elastic_error(failure);
    const bool signalled = failure.kind == ErrorKind::interrupted && failure.signal != 0;
    return signalled ? 128 + failure.signal : static_cast<int>(failure.kind) + 1;
  }
}

}  // namespace dtorch::engine
