// The memory that processes can have, from made-up /proc and /sys.
#include "core/base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dtorch {
namespace {

namespace fs = std::filesystem;

class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() {
    std::string pattern = (fs::temp_directory_path() / "dtorch-memory-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    write("/proc/meminfo",
          "MemTotal:       16384 kB\nMemFree:        1000 kB\nHugePages_Total:   0\nSwapTotal:   1024 kB\n");
  }
  ~MemoryTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

constexpr std::uint64_t kMiB = 1 << 20;

TEST_F(MemoryTest, IsTheMachinesWithoutAGroup) {
  EXPECT_EQ(memory_limit(root_), 17 * kMiB);
  write("/proc/self/cgroup", "0::/user.slice/job\n");
  write("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  EXPECT_EQ(memory_limit(root_), 17 * kMiB);
}

TEST_F(MemoryTest, IsTheLeastLimitOfTheGroupsAround) {
  write("/proc/self/cgroup", "0::/user.slice/job\n");
  write("/sys/fs/cgroup/user.slice/job/memory.max", "4194304\n");
  EXPECT_EQ(memory_limit(root_), 4 * kMiB);
  write("/sys/fs/cgroup/user.slice/memory.max", "3145728\n");
  EXPECT_EQ(memory_limit(root_), 3 * kMiB);
  write("/sys/fs/cgroup/memory.max", "2097152\n");  // a container's own group, seen as the root
  EXPECT_EQ(memory_limit(root_), 2 * kMiB);
}

TEST_F(MemoryTest, KnowsTheOlderGroupsToo) {
  write("/proc/self/cgroup", "8:pids:/x\n4:memory:/slurm/job\n0::/\n");
  write("/sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "5242880\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_limit(root_), 5 * kMiB);
}

TEST_F(MemoryTest, IsUnknownWithoutProc) { EXPECT_EQ(memory_limit(root_ + "/nothing"), 0U); }

TEST(MemoryOfThisMachineTest, IsWhatItHas) {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  EXPECT_GT(memory_limit(), 64 * kMiB);
  EXPECT_LE(memory_limit(), 4 * pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
}

}  // namespace
}  // namespace dtorch
