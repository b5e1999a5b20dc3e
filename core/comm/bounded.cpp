#include "core/comm/bounded.h"

#include <future>
#include <thread>

#include "core/base/error.h"
#include "core/base/log.h"

namespace dtorch {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(20);

/** Runs a call on a thread of its own. `wait` gets its future, and leaves the thread to itself by throwing. */
template <typename Wait>
void run_aside(std::function<void()> call, const Wait& wait) {
  std::packaged_task<void()> task(std::move(call));
  auto result = task.get_future();
  std::thread thread(std::move(task));
  try {
    wait(result);
  } catch (...) {
    thread.detach();
    throw;
  }
  thread.join();
  result.get();
}

}  // namespace

void run_bounded(std::function<void()> call, Deadline deadline, const std::string& message,
                 const std::string& help) {
  run_aside(std::move(call), [&](const std::future<void>& result) {
    if (result.wait_until(deadline.at()) != std::future_status::ready)
      throw Error(ErrorKind::timeout, message, help);
  });
}

void run_watched(std::function<void()> call, const std::function<void()>& check) {
  run_aside(std::move(call), [&](const std::future<void>& result) {
    while (result.wait_for(kCheckInterval) != std::future_status::ready) check();
  });
}

void try_bounded(std::function<void()> call, std::chrono::milliseconds limit) {
  try {
    run_bounded(std::move(call), Deadline::after(limit), "it has not ended in time");
  } catch (const std::exception& error) {
    log_debug(std::string("given up after a failure: ") + error.what());
  }
}

}  // namespace dtorch
