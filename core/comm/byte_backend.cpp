#include "core/comm/byte_backend.h"

#include <ATen/core/Tensor.h>

#include <cstring>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/comm/lanes.h"
#include "core/comm/waiting_queue.h"

namespace dtorch {
namespace {

class StoreView : public PlainStore {
 public:
  explicit StoreView(StorePtr store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override {
    try {
      store_->wait({key}, deadline.remaining_ms());
      return store_->get_to_str(key);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      // libtorch's says the same for a key that did not come and for a server that is gone.
      throw Error(deadline.expired() ? ErrorKind::timeout : ErrorKind::lost,
                  "the store has no " + key + ": " + error.what());
    }
  }

 private:
  const StorePtr store_;
};

DataType type_of(const at::Tensor& tensor) { return static_cast<DataType>(tensor.scalar_type()); }
std::size_t count_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }
std::size_t bytes_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.nbytes()); }
void* writable(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }
const void* readable(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

std::vector<std::size_t> in_bytes(std::span<const std::int64_t> counts, const at::Tensor& tensor) {
  std::vector<std::size_t> bytes;
  for (const auto count : counts) bytes.push_back(static_cast<std::size_t>(count) * tensor.element_size());
  return bytes;
}

class ByteBackend : public Backend {
 public:
  ByteBackend(std::string name, std::unique_ptr<ByteCollectives> collectives)
      : name_(std::move(name)),
        collectives_(std::move(collectives)),
        queue_([this] { return collectives_->missing(); }) {}
  ~ByteBackend() override {
    // Peers may still be busy with what this rank has done: only what is unfinished here is aborted.
    if (!queue_.idle() || !lanes_.idle()) abort("the process group was destroyed");
    lanes_.close();
  }

  std::string_view name() const override { return name_; }
  std::string_view device() const override { return "cpu"; }

  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op, Call call) override {
    return launch(std::move(call), [this, tensor, op](const ByteCall& mine) {
      collectives_->all_reduce(writable(tensor), count_of(tensor), type_of(tensor), op, mine);
    });
  }
  WorkPtr reduce(const at::Tensor& tensor, int root, ReduceOp op, Call call) override {
    return launch(std::move(call), [this, tensor, root, op](const ByteCall& mine) {
      collectives_->reduce(writable(tensor), count_of(tensor), type_of(tensor), op, root, mine);
    });
  }
  WorkPtr broadcast(const at::Tensor& tensor, int root, Call call) override {
    return launch(std::move(call), [this, tensor, root](const ByteCall& mine) {
      collectives_->broadcast(writable(tensor), bytes_of(tensor), root, mine);
    });
  }
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, Call call) override {
    return launch(std::move(call), [this, output, input](const ByteCall& mine) {
      collectives_->all_gather(writable(output), readable(input), bytes_of(input), mine);
    });
  }
  WorkPtr gather(const at::Tensor& output, const at::Tensor& input, int root, Call call) override {
    return launch(std::move(call), [this, output, input, root](const ByteCall& mine) {
      collectives_->gather(writable(output), readable(input), bytes_of(input), root, mine);
    });
  }
  WorkPtr scatter(const at::Tensor& output, const at::Tensor& input, int root, Call call) override {
    return launch(std::move(call), [this, output, input, root](const ByteCall& mine) {
      collectives_->scatter(writable(output), readable(input), bytes_of(output), root, mine);
    });
  }
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op, Call call) override {
    return launch(std::move(call), [this, output, input, op](const ByteCall& mine) {
      collectives_->reduce_scatter(writable(output), readable(input), count_of(output), type_of(output), op,
                                   mine);
    });
  }
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input,
                     std::span<const std::int64_t> output_counts, std::span<const std::int64_t> input_counts,
                     Call call) override {
    auto out_bytes = in_bytes(output_counts, output);
    auto sizes = in_bytes(input_counts, input);
    return launch(std::move(call), [this, output, input, out_bytes = std::move(out_bytes),
                                    sizes = std::move(sizes)](const ByteCall& mine) {
      collectives_->all_to_all(writable(output), readable(input), out_bytes, sizes, mine);
    });
  }
  WorkPtr barrier(Call call) override {
    return launch(std::move(call), [this](const ByteCall& mine) { collectives_->barrier(mine); });
  }

  WorkPtr send(const at::Tensor& tensor, int destination, int tag, Call call) override {
    return message(destination, tag, std::move(call), [this, tensor, destination, tag](const ByteCall& mine) {
      collectives_->send(readable(tensor), bytes_of(tensor), destination, tag, mine);
    });
  }
  WorkPtr recv(const at::Tensor& tensor, int source, int tag, Call call) override {
    return message(source, tag, std::move(call), [this, tensor, source, tag](const ByteCall& mine) {
      collectives_->recv(writable(tensor), bytes_of(tensor), source, tag, mine);
    });
  }

  void abort(const std::string& reason) override {
    fail_all(std::make_exception_ptr(PeerError(ErrorKind::lost, reason)));
    collectives_->abort(reason);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    return collectives_->allocate(bytes, Deadline::after(kAllocateLimit));
  }
  std::shared_ptr<void> allocate_common(std::size_t bytes) override {
    return collectives_->allocate_common(bytes, Deadline::after(kAllocateLimit));
  }

 private:
  using Body = std::function<void(const ByteCall&)>;
  static constexpr std::chrono::seconds kAllocateLimit{60};

  WorkPtr launch(Call call, Body body) {
    const Deadline limit = call.deadline;
    auto job = [this, call = std::move(call), body = std::move(body)](Deadline deadline) {
      run(call, deadline, body);
    };
    return queue_.push(std::move(job), limit);
  }

  WorkPtr message(int peer, int tag, Call call, Body body) {
    const auto direction = call.signature.operation;
    auto job = [this, call = std::move(call), body = std::move(body)](Progress&) {
      run(call, call.deadline, body);
    };
    return lanes_.push(peer, direction, tag, std::move(job));
  }

  void run(const Call& call, Deadline deadline, const Body& body) {
    try {
      body({call.signature, deadline, call.agreed});
      if (call.finish) call.finish();
    } catch (...) {
      fail_all(std::current_exception());
      throw;
    }
  }

  void fail_all(const std::exception_ptr& error) {
    queue_.fail(error);
    lanes_.fail(error);
  }

  const std::string name_;
  const std::unique_ptr<ByteCollectives> collectives_;
  Lanes lanes_;
  WaitingQueue queue_;
};

}  // namespace

std::unique_ptr<PlainStore> make_plain_store(StorePtr store) {
  return std::make_unique<StoreView>(std::move(store));
}

std::unique_ptr<Backend> make_byte_backend(std::string name, std::unique_ptr<ByteCollectives> collectives) {
  return std::make_unique<ByteBackend>(std::move(name), std::move(collectives));
}

}  // namespace dtorch
