#include "core/comm/bounded.h"

#include <future>
#include <thread>

#include "core/base/error.h"

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

}  // namespace dtorch
