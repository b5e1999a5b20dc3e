#include "core/data/loader.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/base/signal_block.h"
#include "core/data/batch.h"
#include "core/data/batch_pool.h"
#include "core/data/gather.h"

namespace dtorch {
namespace {

constexpr int kMaxWorkers = 64;
constexpr std::int64_t kMinDepth = 4;  // batches ahead of need

ItemView view_of(const ImageDataset& dataset) {
  const auto& images = dataset.images();
  const auto& labels = dataset.labels();
  const bool fits = images.scalar_type() == at::kByte && labels.scalar_type() == at::kLong &&
                    images.dim() >= 1 && labels.dim() == 1 && images.size(0) == dataset.size() &&
                    labels.size(0) == dataset.size() && images.is_contiguous() && labels.is_contiguous();
  if (!fits) {
    throw Error(ErrorKind::usage,
                "a dataset's images must be uint8 [n, ...] and its labels int64 [n], contiguous");
  }
  const auto items = std::max<std::int64_t>(dataset.size(), 1);
  return {images.const_data_ptr<std::uint8_t>(), labels.const_data_ptr<std::int64_t>(), dataset.size(),
          static_cast<std::size_t>(images.numel() / items)};
}

std::vector<std::int64_t> batch_shape(const ImageDataset& dataset, std::int64_t batch_size) {
  auto shape = dataset.images().sizes().vec();
  shape.front() = batch_size;
  return shape;
}

DataLoaderOptions checked(DataLoaderOptions options) {
  if (options.batch_size < 1) {
    throw Error(ErrorKind::usage, fmt::format("batch size {}; expected 1 or more", options.batch_size));
  }
  if (options.workers < 0 || options.workers > kMaxWorkers) {
    throw Error(ErrorKind::usage,
                fmt::format("{} loader workers; expected 0 to {}", options.workers, kMaxWorkers));
  }
  return options;
}

}  // namespace

// Batch i is made in cell i modulo the number of cells. The consumer gives a cell its tensors, a worker fills
// them, so tensors are allocated and recycled on the consumer's thread only and workers never call into
// libtorch.
struct DataLoader::Impl {
  struct Cell {
    Batch batch;
    float* inputs = nullptr;
    std::int64_t* targets = nullptr;
    std::exception_ptr fault;
    bool ready = false;  // filled, or faulty
  };

  Impl(std::shared_ptr<const ImageDataset> data, DataLoaderOptions wanted)
      : options(checked(wanted)),
        dataset(std::move(data)),
        items(view_of(*dataset)),
        pool(batch_shape(*dataset, 0)),
        cells(static_cast<std::size_t>(
            options.workers == 0 ? 1 : std::max<std::int64_t>(kMinDepth, 2 * options.workers))) {
    const AllSignalsBlock blocked;  // a handler that ran in a worker would hold up the batches
    try {
      for (int i = 0; i < options.workers; ++i) threads.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      join();
      throw Error(ErrorKind::os_resource,
                  fmt::format("cannot start {} loader workers: {}", options.workers, error.what()));
    }
  }

  ~Impl() { join(); }

  void join() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    room.notify_all();
    for (auto& thread : threads) thread.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::int64_t depth() const { return static_cast<std::int64_t>(cells.size()); }
  Cell& cell(std::int64_t batch) { return cells[static_cast<std::size_t>(batch % depth())]; }

  std::span<const std::int64_t> indices_of(std::int64_t batch) const {
    const auto first = static_cast<std::size_t>(batch * options.batch_size);
    return std::span(indices).subspan(
        first, std::min(static_cast<std::size_t>(options.batch_size), indices.size() - first));
  }

  // On the consumer's thread.
  void equip(Cell& empty) {
    empty.batch = pool.take();
    empty.inputs = empty.batch.inputs.mutable_data_ptr<float>();
    empty.targets = empty.batch.targets.mutable_data_ptr<std::int64_t>();
    empty.fault = nullptr;
    empty.ready = false;
  }

  void fill(std::int64_t batch, const Cell& target) {
    gather(items, indices_of(batch), target.inputs, target.targets);
  }

  void work() {
    pthread_setname_np(pthread_self(), "dtorch-data");
    std::unique_lock lock(mutex);
    while (true) {
      room.wait(lock, [this] { return stopping || claimed < std::min(total, consumed + depth()); });
      if (stopping) return;
      const auto batch = claimed++;
      Cell& target = cell(batch);
      ++busy;
      lock.unlock();
      std::exception_ptr caught;
      try {
        fill(batch, target);
      } catch (...) {
        caught = std::current_exception();
      }
      lock.lock();
      --busy;
      target.fault = std::move(caught);
      target.ready = true;
      done.notify_one();
    }
  }

  void start(std::vector<std::int64_t> order, std::int64_t batches) {
    std::unique_lock lock(mutex);
    claimed = total;  // nothing more of an epoch left unfinished
    done.wait(lock, [this] { return busy == 0; });
    for (auto& old : cells) old.batch = {};
    indices = std::move(order);
    if (const auto most = std::min(options.batch_size, std::ssize(indices)); most != capacity) {
      capacity = most;  // a batch size beyond the epoch's samples costs no memory
      pool = BatchPool(batch_shape(*dataset, capacity));
    }
    total = batches;
    consumed = 0;
    claimed = 0;
    for (std::int64_t i = 0; i < std::min(total, depth()); ++i) equip(cell(i));
    lock.unlock();
    room.notify_all();
  }

  std::optional<Batch> next() {
    if (consumed == total) return std::nullopt;
    if (options.workers == 0) return next_inline();
    std::unique_lock lock(mutex);
    Cell& mine = cell(consumed);
    if (!mine.ready) {
      const auto begin = Clock::now();
      done.wait(lock, [&] { return mine.ready; });
      waited += Clock::now() - begin;
    }
    if (mine.fault) std::rethrow_exception(mine.fault);
    Batch batch = std::move(mine.batch);
    mine.ready = false;
    if (consumed + depth() < total) equip(mine);
    ++consumed;
    // Waking a worker for every batch would cost a system call a step: let some room gather.
    const bool wake = consumed + depth() - claimed >= depth() / 2;
    lock.unlock();
    if (wake) room.notify_all();
    return shortened(std::move(batch), consumed - 1);
  }

  std::optional<Batch> next_inline() {
    const auto begin = Clock::now();
    Cell& only = cell(0);
    equip(only);
    fill(consumed, only);
    waited += Clock::now() - begin;
    return shortened(std::move(only.batch), consumed++);
  }

  Batch shortened(Batch batch, std::int64_t number) const {
    const auto count = static_cast<std::int64_t>(indices_of(number).size());
    if (count == capacity) return batch;
    return {batch.inputs.narrow(0, 0, count), batch.targets.narrow(0, 0, count)};
  }

  const DataLoaderOptions options;
  const std::shared_ptr<const ImageDataset> dataset;
  const ItemView items;
  BatchPool pool;                     // consumer's thread
  std::int64_t capacity = 0;          // samples in its batches
  std::chrono::nanoseconds waited{};  // consumer's thread

  std::mutex mutex;  // guards what follows; a claimed cell's memory is its worker's until it is ready
  std::condition_variable room;  // a batch may be claimed, or stopping
  std::condition_variable done;  // a batch is ready, or a fault
  std::vector<Cell> cells;
  std::vector<std::int64_t> indices;  // changes only while no worker is busy
  std::int64_t total = 0;             // batches of the epoch
  std::int64_t claimed = 0;           // taken by workers
  std::int64_t consumed = 0;          // given out; written by the consumer only
  std::int64_t busy = 0;              // workers filling a cell
  bool stopping = false;
  std::vector<std::thread> threads;
};

DataLoader::DataLoader(std::shared_ptr<const ImageDataset> dataset, DataLoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(dataset), options)) {}
DataLoader::~DataLoader() = default;

void DataLoader::start(std::vector<std::int64_t> indices) {
  const auto count = batches(static_cast<std::int64_t>(indices.size()));
  impl_->start(std::move(indices), count);
}

std::optional<Batch> DataLoader::next() { return impl_->next(); }

std::int64_t DataLoader::batches(std::int64_t indices) const {
  const auto size = impl_->options.batch_size;
  return indices / size + (!impl_->options.drop_last && indices % size != 0 ? 1 : 0);
}

std::chrono::nanoseconds DataLoader::time_waiting() const { return impl_->waited; }

}  // namespace dtorch
