#include "core/comm/bounded.h"

#include <future>
#include <thread>

#include "core/base/error.h"
#include "core/base/log.h"

namespace dtorch {

void run_bounded(std::function<void()> call, Deadline deadline, const std::string& message,
                 const std::string& help) {
  std::packaged_task<void()> task(std::move(call));
  auto result = task.get_future();
  std::thread thread(std::move(task));
  if (result.wait_until(deadline.at()) != std::future_status::ready) {
    thread.detach();
    throw Error(ErrorKind::timeout, message, help);
  }
  thread.join();
  result.get();
}

void try_bounded(std::function<void()> call, std::chrono::milliseconds limit) {
  try {
    run_bounded(std::move(call), Deadline::after(limit), "it has not ended in time");
  } catch (const std::exception& error) {
    log_debug(std::string("given up after a failure: ") + error.what());
  }
}

}  // namespace dtorch
