// Ranks of a shared-memory group that are threads of a test, and what they compute.
#pragma once
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/shm/engine/engine.h"
#include "core/bytes/half.h"
#include "core/bytes/peer_error.h"
#include "tests/unit/plain_stores.h"

namespace dtorch::shm {

/** Maps a file once for all ranks of the program: ThreadSanitizer knows memory by its address. */
class OneMapping {
 public:
  std::shared_ptr<std::byte> operator()(int fd, std::size_t bytes) {
    struct stat status {};
    ::fstat(fd, &status);
    const std::lock_guard lock(known_->mutex);
    auto& known = known_->files[status.st_ino];
    auto memory = known.lock();
    if (!memory) known = memory = map_shared(fd, bytes);
    return memory;
  }

 private:
  struct Known {
    std::mutex mutex;
    std::map<ino_t, std::weak_ptr<std::byte>> files;
  };
  std::shared_ptr<Known> known_ = std::make_shared<Known>();
};

inline Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

/** Runs the body as each rank; what it throws is a failure of the test. */
template <typename Body>
void run_threads(int world, Body body) {
  MemoryStore store;
  const Options options{OneMapping()};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto group = connect_shm(store, rank, world, soon(), options);
        body(*group, rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " of " << world << ": " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

/** Numbers calls and describes them, as a process group does. */
class Caller {
 public:
  ByteCall operator()(Operation operation, std::size_t count, DataType type = DataType::float32,
                      int root = -1) {
    ByteCall call{{}, soon()};
    call.signature.sequence = ++sequence_;
    call.signature.operation = operation;
    call.signature.count = static_cast<std::int64_t>(count);
    call.signature.dtype = static_cast<std::int8_t>(type);
    call.signature.root = root;
    return call;
  }

 private:
  std::uint64_t sequence_ = 0;
};

/** What a rank holds at an index: small whole numbers, whose sums every type holds. */
inline float value_at(int rank, std::size_t index) {
  return static_cast<float>((index * 7 + static_cast<std::size_t>(rank) * 5) % 9);
}

inline void store_value(void* data, std::size_t index, DataType type, float value) {
  switch (type) {
    case DataType::float32: static_cast<float*>(data)[index] = value; break;
    case DataType::float64: static_cast<double*>(data)[index] = value; break;
    case DataType::int32: static_cast<std::int32_t*>(data)[index] = static_cast<std::int32_t>(value); break;
    case DataType::float16: static_cast<std::uint16_t*>(data)[index] = to_float16(value); break;
    case DataType::bfloat16: static_cast<std::uint16_t*>(data)[index] = to_bfloat16(value); break;
    default: static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(value);
  }
}

/** Memory of a group or of one rank's own. */
class Buffer {
 public:
  Buffer(ByteCollectives& group, std::size_t bytes, bool shared) : bytes_(bytes) {
    if (shared) memory_ = group.allocate(bytes, soon());
    if (!memory_) {
      own_.resize(bytes / 8 + 1);
      memory_ = std::shared_ptr<void>(own_.data(), [](void*) {});
    }
  }
  void* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }

 private:
  std::size_t bytes_;
  std::vector<double> own_;
  std::shared_ptr<void> memory_;
};

}  // namespace dtorch::shm
