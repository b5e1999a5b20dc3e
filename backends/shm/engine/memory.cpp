#include "backends/shm/engine/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <string>

#include "core/base/error.h"

namespace dtorch::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr double kMiB = 1024 * 1024;

[[noreturn]] void fail(const char* call, std::size_t bytes, int error) {
  throw Error(ErrorKind::os_resource,
              fmt::format("no shared memory of {:.1f} MiB: {}", static_cast<double>(bytes) / kMiB,
                          errno_text(call, error)),
              "free memory, raise the limit of the container or of open files, or use fewer ranks");
}

std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  std::size_t kib = 0;
  while (file >> name >> kib && std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return std::numeric_limits<std::size_t>::max();
}

}  // namespace

std::shared_ptr<std::byte> map_shared(int fd, std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail("mmap", bytes, errno);
  return {static_cast<std::byte*>(memory), [bytes](std::byte* at) { ::munmap(at, bytes); }};
}

Fd create_memory(std::size_t bytes, std::size_t reserved) {
  // Asked first: taking more than there is would wake the system's out-of-memory killer.
  if (reserved > available_memory()) fail("fallocate", reserved, ENOMEM);
  Fd fd(::memfd_create("dtorch", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) fail("memfd_create", bytes, errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail("ftruncate", bytes, errno);
  int result = 0;
  do {
    result = ::fallocate(fd.get(), 0, 0, static_cast<off_t>(reserved));
  } while (result != 0 && errno == EINTR);
  if (result != 0) fail("fallocate", reserved, errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) fail("fcntl", bytes, errno);
  return fd;
}

bool is_memory_of(int fd, std::size_t bytes) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && static_cast<std::size_t>(status.st_size) == bytes &&
         (::fcntl(fd, F_GET_SEALS) & kSeals) == kSeals;
}

void Regions::add(const std::shared_ptr<Region>& region) {
  const std::lock_guard lock(mutex_);
  std::erase_if(regions_, [](const auto& known) { return known.expired(); });
  regions_.push_back(region);
  any_ = true;
}

std::shared_ptr<Region> Regions::find(const void* data, std::size_t bytes, Place& place) {
  place = {};
  if (!any_) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(mutex_);
  for (const auto& known : regions_) {
    auto region = known.lock();
    if (!region) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(region->part(region->rank));
    if (address < begin || address - begin > region->bytes) continue;
    if (bytes > region->bytes - (address - begin)) continue;
    place = {region->id, 0, address - begin};
    return region;
  }
  return nullptr;
}

}  // namespace dtorch::shm
