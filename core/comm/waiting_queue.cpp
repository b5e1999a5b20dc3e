#include "core/comm/waiting_queue.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace dtorch {
namespace {

/** Between two looks of the queue's thread. Waking it for every operation would cost more than most of them. */
constexpr auto kNap = std::chrono::milliseconds(5);
/** After so long without an operation it sleeps until it is woken. */
constexpr auto kIdle = std::chrono::seconds(1);

}  // namespace

struct WaitingQueue::State {
  std::function<std::vector<int>()> missing;
  std::mutex mutex;
  std::condition_variable changed;                // an operation ended, for those that wait
  std::condition_variable wake;                   // for the thread
  std::deque<std::shared_ptr<WaitedWork>> queue;  // guarded by mutex, as is what follows
  std::exception_ptr failure;
  bool running = false;
  bool asleep = false;
  bool closing = false;
  Clock::time_point last_push;
  std::thread thread;

  void run_first(std::unique_lock<std::mutex>& lock, Deadline deadline);
  void run();
};

class WaitingQueue::WaitedWork : public Work {
 public:
  WaitedWork(std::shared_ptr<State> state, Job job, Deadline deadline)
      : state_(std::move(state)), job_(std::move(job)), deadline_(deadline), pushed_(Clock::now()) {}

  std::optional<Clock::time_point> completed_at() const override {
    const std::lock_guard lock(state_->mutex);
    return completed_at_;
  }
  std::vector<int> waiting_for() const override {
    return completed_at() ? std::vector<int>{} : state_->missing();
  }

  void wait(Deadline deadline) override {
    std::unique_lock lock(state_->mutex);
    while (!completed_at_) {
      if (!state_->running) {
        state_->run_first(lock, deadline);
      } else if (state_->changed.wait_until(lock, deadline.at()) == std::cv_status::timeout &&
                 !completed_at_) {
        lock.unlock();
        throw PeerError(ErrorKind::timeout, "the deadline passed", state_->missing());
      }
    }
    if (error_) std::rethrow_exception(error_);
  }

  std::exception_ptr run(Deadline deadline) {
    try {
      job_(Deadline(std::min(deadline.at(), deadline_.at())));
    } catch (...) {
      return std::current_exception();
    }
    return {};
  }
  void forget_job() { job_ = nullptr; }
  void complete(std::exception_ptr error) {
    error_ = std::move(error);
    completed_at_ = Clock::now();
  }
  Clock::time_point pushed() const { return pushed_; }

 private:
  const std::shared_ptr<State> state_;
  Job job_;
  const Deadline deadline_;
  const Clock::time_point pushed_;
  std::optional<Clock::time_point> completed_at_;  // guarded by the state's mutex
  std::exception_ptr error_;                       // guarded by the state's mutex
};

void WaitingQueue::State::run_first(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  const auto work = std::move(queue.front());
  queue.pop_front();
  auto error = failure;
  running = true;
  lock.unlock();
  if (!error) error = work->run(deadline);
  work->forget_job();
  lock.lock();
  running = false;
  if (error && !failure) failure = error;
  work->complete(error);
  changed.notify_all();
}

void WaitingQueue::State::run() {
  std::unique_lock lock(mutex);
  while (!closing) {
    const auto now = Clock::now();
    if (!running && !queue.empty() && now - queue.front()->pushed() >= kNap) {
      run_first(lock, Deadline(Clock::time_point::max()));
      continue;
    }
    if (queue.empty() && now - last_push > kIdle) {
      asleep = true;
      wake.wait(lock);
      asleep = false;
    } else {
      wake.wait_for(lock, kNap);
    }
  }
  while (!running && !queue.empty()) run_first(lock, Deadline(Clock::time_point::max()));
}

WaitingQueue::WaitingQueue(std::function<std::vector<int>()> missing) : state_(std::make_shared<State>()) {
  state_->missing = std::move(missing);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

WaitingQueue::~WaitingQueue() {
  {
    std::unique_lock lock(state_->mutex);
    state_->closing = true;
    state_->wake.notify_all();
    state_->changed.wait(lock, [this] { return !state_->running; });
  }
  state_->thread.join();
}

WorkPtr WaitingQueue::push(Job job, Deadline deadline) {
  auto work = std::make_shared<WaitedWork>(state_, std::move(job), deadline);
  const std::lock_guard lock(state_->mutex);
  state_->queue.push_back(work);
  state_->last_push = Clock::now();
  if (state_->asleep) state_->wake.notify_all();
  return work;
}

void WaitingQueue::fail(std::exception_ptr error) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure) state_->failure = std::move(error);
}

bool WaitingQueue::idle() const {
  const std::lock_guard lock(state_->mutex);
  return !state_->running && state_->queue.empty();
}

}  // namespace dtorch
