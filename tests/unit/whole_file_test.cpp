#include "core/base/whole_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/error.h"

namespace dtorch {
namespace {

namespace fs = std::filesystem;

class WholeFileTest : public ::testing::Test {
 protected:
  WholeFileTest() {
    std::string name = (fs::temp_directory_path() / "dtorch-whole-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~WholeFileTest() override { fs::remove_all(folder_); }
  std::string path(const char* name = "page.html") const { return (folder_ / name).string(); }
  std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  long entries() const { return std::distance(fs::directory_iterator(folder_), {}); }

  fs::path folder_;
};

TEST_F(WholeFileTest, AppearsWithItsContents) {
  WholeFile file(path());
  EXPECT_FALSE(fs::exists(path()));
  file.commit("all of it");
  EXPECT_EQ(text(), "all of it");
  EXPECT_EQ(entries(), 1);
}

TEST_F(WholeFileTest, WithoutCommitTheOldOneStays) {
  std::ofstream(path()) << "old";
  { const WholeFile file(path()); }
  EXPECT_EQ(text(), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(WholeFileTest, APlaceThatCannotBeWrittenIsKnownAtOnce) {
  try {
    const WholeFile file(path("no/such/folder"));
    ADD_FAILURE() << "was created";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cannot_create);
  }
}

TEST_F(WholeFileTest, AFullDiskIsAnError) {
  WholeFile full("/dev/full");
  try {
    full.commit("text");
    ADD_FAILURE() << "was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cannot_write);
  }
}

TEST_F(WholeFileTest, APipeIsWrittenTo) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  const Fd reader(::open(path().c_str(), O_RDONLY | O_NONBLOCK));
  WholeFile file(path());
  file.commit("through");
  char read[8] = {};
  EXPECT_EQ(::read(reader.get(), read, 7), 7);
  EXPECT_STREQ(read, "through");
  EXPECT_TRUE(fs::is_fifo(path()));
}

}  // namespace
}  // namespace dtorch
