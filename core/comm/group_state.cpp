#include "core/comm/group_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "core/base/log.h"

namespace dtorch {
namespace {

constexpr std::size_t kRingSize = 64;

/** A backend's Work with the group's bookkeeping around its wait. */
class GroupWork : public Work {
 public:
  GroupWork(std::shared_ptr<ProcessGroup::Impl> group, RingEntry entry, Deadline deadline)
      : group_(std::move(group)), entry_(std::move(entry)), deadline_(deadline) {}

  std::optional<Clock::time_point> completed_at() const override { return entry_.work->completed_at(); }
  std::vector<int> waiting_for() const override { return entry_.work->waiting_for(); }

  void wait(Deadline deadline) override {
    const auto begin = Clock::now();
    std::exception_ptr error;
    try {
      entry_.work->wait(Deadline(std::min(deadline.at(), deadline_.at())));
    } catch (...) {
      error = std::current_exception();
    }
    group_->waited_ns += (Clock::now() - begin).count();
    if (error) group_->fail(entry_, error, waiting_for());
  }

 private:
  const std::shared_ptr<ProcessGroup::Impl> group_;
  const RingEntry entry_;
  const Deadline deadline_;
};

}  // namespace

CollectiveRecord RingEntry::record() const {
  CollectiveRecord result;
  result.sequence = signature.sequence;
  result.operation = describe(signature);
  result.bytes = bytes;
  result.started = started;
  result.finished = work->completed_at();
  return result;
}

ProcessGroup::Impl::Impl(const BackendFactory& factory_in, StorePtr store_in, int rank_in, int size_in,
                         ProcessGroupOptions options_in)
    : factory(factory_in),
      parent_store(std::move(store_in)),
      store(c10::make_intrusive<c10d::PrefixStore>("group/" + options_in.name, parent_store)),
      rank(rank_in),
      size(size_in),
      options(std::move(options_in)) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw Error(ErrorKind::usage, fmt::format("process group '{}': rank {} of {}", options.name, rank, size));
  }
  backend = factory.create(store, rank, size, {options.interface, Deadline::after(options.init_timeout)});
  log_debug(fmt::format("[{}] rank {} of {} connected over {}", options.name, rank, size, factory.name()));
}

CheckContext ProcessGroup::Impl::checking(std::string_view operation) const {
  return {operation, rank, size, backend->device()};
}

void ProcessGroup::Impl::throw_if_poisoned() const {
  const std::lock_guard lock(mutex);
  if (poison) throw *poison;
}

const RingEntry* ProcessGroup::Impl::unfinished() const {
  const auto found =
      std::find_if(ring.begin(), ring.end(), [](const auto& entry) { return !entry.work->is_completed(); });
  return found == ring.end() ? nullptr : &*found;
}

WorkPtr ProcessGroup::Impl::launch(CallSignature signature, const at::Tensor& tensor, const Start& start,
                                   std::function<void()> finish, bool agreed) {
  signature.dtype = static_cast<std::int8_t>(tensor.scalar_type());
  signature.count = tensor.numel();
  return launch(signature, tensor.nbytes(), Deadline::after(options.timeout), start, std::move(finish),
                agreed);
}

WorkPtr ProcessGroup::Impl::launch(CallSignature signature, std::uint64_t bytes, Deadline deadline,
                                   const Start& start, std::function<void()> finish, bool agreed) {
  RingEntry entry;
  const std::lock_guard lock(mutex);
  if (poison) throw *poison;
  const bool point_to_point =
      signature.operation == Operation::send || signature.operation == Operation::recv;
  signature.sequence = point_to_point ? ++point_to_point_sequence : ++sequence;
  entry.signature = signature;
  entry.bytes = bytes;
  entry.started = Clock::now();
  if (log_enabled(LogLevel::debug)) {
    log_debug(fmt::format("[{}] rank {} #{} {} {} bytes", options.name, rank, signature.sequence,
                          describe(signature), bytes));
  }
  entry.work = start(Call{signature, deadline, agreed, std::move(finish)});
  ring.push_back(entry);
  if (ring.size() > kRingSize) ring.pop_front();
  return std::make_shared<GroupWork>(shared_from_this(), std::move(entry), deadline);
}

}  // namespace dtorch
