// Memory that processes share, and the parts of it that callers have been given.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/fd.h"

namespace dtorch::shm {

/** The file's memory, unmapped with the last reference. Throws Error(os_resource). */
using Mapper = std::function<std::shared_ptr<std::byte>(int fd, std::size_t bytes)>;
std::shared_ptr<std::byte> map_shared(int fd, std::size_t bytes);

/**
 * A nameless memory file whose size is fixed for good, zeroed. The first `reserved` bytes are taken from the
 * system now, so that a lack of memory is an error here and no signal later. Throws Error(os_resource).
 */
Fd create_memory(std::size_t bytes, std::size_t reserved);

/** Whether the file has that size and cannot shrink under its users. */
bool is_memory_of(int fd, std::size_t bytes);

/** What one allocate() made: a part of equal size for each rank, one after the other. */
struct Region {
  std::uint32_t id = 0;
  int rank = 0;
  int world = 1;
  std::size_t bytes = 0;  ///< of one rank's part
  std::shared_ptr<std::byte> memory;

  std::byte* part(int of) const { return memory.get() + static_cast<std::size_t>(of) * bytes; }
};

/** Where a buffer lies, as peers are told. */
struct Place {
  std::uint32_t region = 0;  ///< 0: in none, it is private memory
  std::uint32_t reserved = 0;
  std::uint64_t offset = 0;
};

/** The regions in use. Any thread. A region goes when its users drop it. */
class Regions {
 public:
  void add(const std::shared_ptr<Region>& region);
  /** The region whose part of this rank holds all of the buffer, and where; null if there is none. */
  std::shared_ptr<Region> find(const void* data, std::size_t bytes, Place& place);

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<std::weak_ptr<Region>> regions_;
};

}  // namespace dtorch::shm
