#include "core/train/stop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace dtorch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWatchInterval{50};
constexpr milliseconds kAnswerInterval{2};
constexpr milliseconds kParting{
    200};  ///< for the watcher to end by itself: its store may not answer any more
constexpr const char* kWishKey = "train/stop/wish";

std::string answer_key(int rank) { return fmt::format("train/stop/begun/{}", rank); }

}  // namespace

struct StopAgreement::Impl {
  StorePtr store;
  int rank;
  int world_size;
  const std::atomic<bool>* requested;
  milliseconds timeout;

  std::mutex mutex;
  std::condition_variable wake;
  bool ended = false;                     // guarded by mutex
  bool watching = true;                   // guarded by mutex
  bool frozen = false;                    // guarded by mutex
  std::int64_t begun = 0;                 // guarded by mutex; constant once frozen
  std::optional<std::int64_t> last_step;  // training thread only

  void watch();
  void watch_until_ended();
  bool wish_seen();
  std::int64_t agree();
};

StopAgreement::StopAgreement(StorePtr store, int rank, int world_size, const std::atomic<bool>* requested,
                             milliseconds timeout)
    : impl_(std::make_shared<Impl>()) {
  impl_->store = std::move(store);
  impl_->rank = rank;
  impl_->world_size = world_size;
  impl_->requested = requested;
  impl_->timeout = timeout;
  std::thread([impl = impl_] { impl->watch(); }).detach();
}

StopAgreement::~StopAgreement() {
  std::unique_lock lock(impl_->mutex);
  impl_->ended = true;
  impl_->wake.notify_all();
  impl_->wake.wait_for(lock, kParting, [this] { return !impl_->watching; });
}

/** Whether someone wants to stop; tells the others when it is this rank. */
bool StopAgreement::Impl::wish_seen() {
  if (requested != nullptr && requested->load()) {
    store->set(kWishKey, std::to_string(rank));
    return true;
  }
  return store->check({kWishKey});
}

void StopAgreement::Impl::watch_until_ended() {
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, kWatchInterval, [&] { return ended; })) {
    lock.unlock();
    const bool seen = wish_seen();
    lock.lock();
    if (!seen || ended) continue;
    frozen = true;
    const auto answer = std::to_string(begun);
    lock.unlock();
    store->set(answer_key(rank), answer);
    return;
  }
}

void StopAgreement::Impl::watch() {
  try {
    watch_until_ended();
  } catch (const std::exception& error) {
    // The store is gone: whoever serves it ends the job; a stop can no longer be agreed on.
    log_debug(fmt::format("rank {}: no longer watching for stop requests: {}", rank, error.what()));
  }
  const std::lock_guard lock(mutex);
  watching = false;
  wake.notify_all();
}

std::int64_t StopAgreement::Impl::agree() {
  const auto deadline = Deadline::after(timeout);
  std::int64_t last = 0;
  std::vector<int> missing(world_size);
  for (int r = 0; r < world_size; ++r) missing[r] = r;
  try {
    while (true) {
      std::erase_if(missing, [&](int r) {
        if (!store->check({answer_key(r)})) return false;
        last = std::max<std::int64_t>(last, std::stoll(store->get_to_str(answer_key(r))));
        return true;
      });
      if (missing.empty()) return last;
      if (deadline.expired()) break;
      std::this_thread::sleep_for(kAnswerInterval);
    }
  } catch (const std::exception& error) {
    throw Error(ErrorKind::lost,
                fmt::format("rank {}: the store went away while the ranks agreed on a stop", rank));
  }
  throw Error(ErrorKind::timeout,
              fmt::format("rank {}: a stop was requested, but rank{} {} did not answer within {} ms", rank,
                          missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), timeout.count()));
}

bool StopAgreement::begin_step(std::int64_t done) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->frozen) {
      impl_->begun = done + 1;
      return true;
    }
  }
  if (!impl_->last_step) impl_->last_step = impl_->agree();
  return done < *impl_->last_step;
}

}  // namespace dtorch
