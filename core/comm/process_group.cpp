#include "core/comm/process_group.h"

#include "core/comm/group_state.h"

namespace dtorch {

ProcessGroup::ProcessGroup(const BackendFactory& factory, StorePtr store, int rank, int world_size,
                           ProcessGroupOptions options)
    : impl_(std::make_shared<Impl>(factory, std::move(store), rank, world_size, std::move(options))) {}

ProcessGroup::~ProcessGroup() {
  // Where all is done, peers may still be busy with what this rank has given them.
  if (current()) impl_->backend->abort("the process group was destroyed");
}

int ProcessGroup::rank() const { return impl_->rank; }
int ProcessGroup::size() const { return impl_->size; }
std::string_view ProcessGroup::backend_name() const { return impl_->backend->name(); }
const std::string& ProcessGroup::name() const { return impl_->options.name; }
std::chrono::milliseconds ProcessGroup::timeout() const { return impl_->options.timeout; }
void ProcessGroup::close(const std::string& reason) { impl_->close(reason); }
void ProcessGroup::abort(const std::string& reason) { impl_->abort(reason); }
std::shared_ptr<void> ProcessGroup::allocate(std::size_t bytes) { return impl_->backend->allocate(bytes); }

std::shared_ptr<void> ProcessGroup::allocate_common(std::size_t bytes) {
  return impl_->backend->allocate_common(bytes);
}
std::chrono::nanoseconds ProcessGroup::time_waiting() const {
  return std::chrono::nanoseconds(impl_->waited_ns.load());
}

std::vector<CollectiveRecord> ProcessGroup::recent() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<CollectiveRecord> records;
  for (const auto& entry : impl_->ring) records.push_back(entry.record());
  return records;
}

std::optional<CollectiveRecord> ProcessGroup::current() const {
  const std::lock_guard lock(impl_->mutex);
  const auto* entry = impl_->unfinished();
  return entry != nullptr ? std::optional(entry->record()) : std::nullopt;
}

}  // namespace dtorch
