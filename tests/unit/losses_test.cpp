// What a rank writes and reports. Right values of hex_float: Python's float.hex().
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/comm/process_group.h"
#include "core/engine/failure.h"
#include "core/engine/sinks.h"

namespace dtorch::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/** A folder of the test's own. */
class LossesTest : public ::testing::Test {
 protected:
  LossesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "losses.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~LossesTest() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(LossesTest, HexFloatIsPythons) {
  EXPECT_EQ(hex_float(2.299999952316284), "0x1.2666660000000p+1");
  EXPECT_EQ(hex_float(0.1), "0x1.999999999999ap-4");
  EXPECT_EQ(hex_float(1), "0x1.0000000000000p+0");
  EXPECT_EQ(hex_float(-1e-310), "-0x0.012688b70e62bp-1022");
  EXPECT_EQ(hex_float(0), "0x0.0p+0");
  EXPECT_EQ(hex_float(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(hex_float(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST_F(LossesTest, FileHasOneLossALineAndTheRankInItsName) {
  std::ofstream(folder_ / "out.3") << "left by an earlier run\n";
  LossesFile file(folder_ / "out", 3);
  file.add(1);
  file.add(0.1);
  file.close();
  EXPECT_EQ(text_of(folder_ / "out.3"), "0x1.0000000000000p+0\n0x1.999999999999ap-4\n");
}

TEST_F(LossesTest, FileThatCannotBeMadeIsNamed) {
  try {
    LossesFile file(folder_ / "missing" / "out", 0);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cannot_create);
    EXPECT_THAT(error.what(), HasSubstr("missing/out.0"));
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
  }
}

TEST_F(LossesTest, FullDiskIsAnErrorAtTheLatestOnClose) {
  std::filesystem::create_symlink("/dev/full", folder_ / "out.0");
  LossesFile file(folder_ / "out", 0);
  file.add(1);
  try {
    file.close();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cannot_write);
    EXPECT_THAT(error.what(), HasSubstr("No space left"));
  }
}

template <typename Thrower>
Failure failure_of(Thrower thrower, const std::optional<std::string>& abort_reason = {}) {
  try {
    thrower();
  } catch (...) {
    return describe_failure(std::current_exception(), abort_reason);
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

CollectiveError collective_error(ErrorKind kind) {
  CollectiveRecord record;
  record.sequence = 42;
  record.operation = "all_reduce sum float32[407050]";
  return {kind, "rank 1 did not come", record, {1}, "look at rank 1"};
}

TEST_F(LossesTest, FailureNamesTheCollectiveAndWhoIsMissing) {
  const auto failure = failure_of([] { throw collective_error(ErrorKind::timeout); });
  EXPECT_EQ(failure.kind, ErrorKind::timeout);
  EXPECT_EQ(failure.collective, "all_reduce #42 sum float32[407050]");
  EXPECT_EQ(failure.missing_ranks, std::vector<int>{1});
  EXPECT_EQ(failure.help, "look at rank 1");
  EXPECT_FALSE(failure.consequence);
  EXPECT_FALSE(failure.host.empty());
}

TEST_F(LossesTest, LostPeersAndAbortsAreConsequences) {
  EXPECT_TRUE(failure_of([] { throw collective_error(ErrorKind::lost); }).consequence);
  const auto aborted = failure_of([] { throw collective_error(ErrorKind::timeout); }, "rank 2 was killed");
  EXPECT_TRUE(aborted.consequence);
  EXPECT_EQ(aborted.kind, ErrorKind::lost);
  EXPECT_EQ(aborted.message, "rank 2 was killed");
}

TEST_F(LossesTest, LibtorchsErrorsLoseTheirBacktrace) {
  const auto failure = failure_of([] { torch::zeros({2, 3}).matmul(torch::zeros({4})); });
  EXPECT_EQ(failure.kind, ErrorKind::training);
  EXPECT_THAT(failure.message, HasSubstr("size mismatch"));
  EXPECT_THAT(failure.message, Not(HasSubstr("frame #")));
}

TEST_F(LossesTest, MemoryThatCannotBeHadIsAResource) {
  const auto failure = failure_of([] { torch::empty({std::int64_t{1} << 52}, torch::kByte); });
  EXPECT_EQ(failure.kind, ErrorKind::os_resource);
}

TEST_F(LossesTest, TorchrunFindsTheCauseInItsErrorFile) {
  const auto path = folder_ / "error.json";
  ::setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1);
  Failure failure;
  failure.message = "it broke";
  failure.help = "mend it";
  write_elastic_error(failure);
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
  const auto json = nlohmann::json::parse(text_of(path));
  EXPECT_EQ(json.at("message"), "it broke\nhelp: mend it");
  EXPECT_GT(json.at("timestamp").get<std::int64_t>(), 1'600'000'000);
}

}  // namespace
}  // namespace dtorch::engine
