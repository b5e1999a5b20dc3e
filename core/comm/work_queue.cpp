#include "core/comm/work_queue.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <thread>

#include "core/base/signal_block.h"

namespace dtorch {
namespace {

constexpr auto kCheckupInterval = std::chrono::milliseconds(100);

}  // namespace

class WorkQueue::QueuedWork : public Work {
 public:
  QueuedWork(WorkQueue::Job job, std::function<void()> checkup, std::vector<int> peers)
      : job_(std::move(job)), checkup_(std::move(checkup)) {
    progress_.expect(std::move(peers));
  }

  std::optional<Clock::time_point> completed_at() const override {
    const std::lock_guard lock(mutex_);
    return completed_at_;
  }
  std::vector<int> waiting_for() const override { return progress_.waiting_for(); }

  void wait(Deadline deadline) override {
    std::unique_lock lock(mutex_);
    while (!completed_at_) {
      if (deadline.expired()) throw PeerError(ErrorKind::timeout, "the deadline passed", waiting_for());
      const auto until = std::min(deadline.at(), Clock::now() + kCheckupInterval);
      if (changed_.wait_until(lock, until, [this] { return completed_at_.has_value(); }) || !checkup_)
        continue;
      lock.unlock();
      checkup_();
      lock.lock();
    }
    if (error_) std::rethrow_exception(error_);
  }

  /** Runs the job, or fails it at once with `refusal`. Returns the error it ended with. */
  std::exception_ptr run(std::exception_ptr refusal) {
    std::exception_ptr error = std::move(refusal);
    if (!error) {
      try {
        job_(progress_);
      } catch (...) {
        error = std::current_exception();
      }
    }
    job_ = nullptr;
    const std::lock_guard lock(mutex_);
    error_ = error;
    completed_at_ = Clock::now();
    changed_.notify_all();
    return error;
  }

 private:
  WorkQueue::Job job_;
  std::function<void()> checkup_;
  Progress progress_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> completed_at_;
  std::exception_ptr error_;
};

void Progress::expect(std::vector<int> ranks) {
  const std::lock_guard lock(mutex_);
  waiting_ = std::move(ranks);
}

void Progress::arrived(int rank) {
  const std::lock_guard lock(mutex_);
  std::erase(waiting_, rank);
}

std::vector<int> Progress::waiting_for() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

struct WorkQueue::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<QueuedWork>> queue;
  std::exception_ptr failure;
  std::function<void()> checkup;
  std::shared_ptr<QueuedWork> running;
  bool closing = false;
  std::thread thread;

  void run() {
    // Operations write to sockets whose other end may be gone: an error for the caller, not the end of the process.
    const SignalBlock no_sigpipe(SIGPIPE);
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return closing || !queue.empty(); });
      if (queue.empty()) return;
      running = std::move(queue.front());
      queue.pop_front();
      const auto refusal = failure;
      lock.unlock();
      const auto error = running->run(refusal);
      lock.lock();
      running.reset();
      if (error && !failure) failure = error;
    }
  }
};

WorkQueue::WorkQueue(std::function<void()> checkup) : state_(std::make_unique<State>()) {
  state_->checkup = std::move(checkup);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
    state_->changed.notify_all();
  }
  state_->thread.join();
}

WorkPtr WorkQueue::push(Job job, std::vector<int> peers) {
  auto work = std::make_shared<QueuedWork>(std::move(job), state_->checkup, std::move(peers));
  const std::lock_guard lock(state_->mutex);
  state_->queue.push_back(work);
  state_->changed.notify_all();
  return work;
}

void WorkQueue::fail(std::exception_ptr error) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure) state_->failure = std::move(error);
}

bool WorkQueue::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->queue.empty() && (!state_->running || state_->running->is_completed());
}

}  // namespace dtorch
