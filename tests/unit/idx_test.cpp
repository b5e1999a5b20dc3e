#include "core/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/data_files.h"

namespace dtorch {
namespace {

using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::idx_header;
using testing::idx_images;
using testing::message_of;
using testing::pixel;
using testing::TempFolder;
using testing::write_file;

class IdxTest : public ::testing::Test {
 protected:
  std::string file(const std::string& bytes) { return write_file(folder_ / "images", bytes); }
  // Of opening and reading it, plain and packed: both must say the same.
  std::string fault(const std::string& bytes, int dimensions = 3) {
    auto plain = fault_of(bytes, dimensions);
    EXPECT_THAT(fault_of(gzip(bytes), dimensions), HasSubstr("offset "));
    return plain;
  }
  std::string fault_of(const std::string& bytes, int dimensions = 3) {
    return message_of(ErrorKind::data, [&] {
      IdxFile idx(file(bytes), dimensions);
      std::vector<std::uint8_t> data(idx.data_bytes());
      idx.read(data);
    });
  }
  TempFolder folder_;
};

TEST_F(IdxTest, ReadsShapeAndDataPlainAndPacked) {
  const auto bytes = idx_images({5, 3, 4});
  for (const auto& form : {bytes, gzip(bytes), gzip(bytes.substr(0, 21)) + gzip(bytes.substr(21))}) {
    IdxFile idx(file(form), 3);
    EXPECT_THAT(idx.shape(), ElementsAre(5, 3, 4));
    std::vector<std::uint8_t> data(idx.data_bytes());
    ASSERT_EQ(data.size(), 60U);
    idx.read(data);
    for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], pixel(i));
  }
}

TEST_F(IdxTest, ImagesMayHaveTwoDimensionsOrMore) {
  EXPECT_THAT(IdxFile(file(idx_images({5, 3})), 0).shape(), ElementsAre(5, 3));
  EXPECT_THAT(IdxFile(file(idx_images({5, 3, 4, 2})), 0).shape(), ElementsAre(5, 3, 4, 2));
  EXPECT_THAT(fault(idx_images({5}), 0), HasSubstr("offset 3: expected 2 to 8 dimensions, found 1"));
  EXPECT_THAT(fault(idx_images({1, 1, 1, 1, 1, 1, 1, 1, 1}), 0), HasSubstr("found 9"));
}

TEST_F(IdxTest, ShowsAWrongMagicNumber) {
  EXPECT_THAT(
      fault("PK\x03\x04 and so on"),
      HasSubstr(
          "images: offset 0: expected an IDX magic number (00 00, type, dimensions), found 50 4b 03 04"));
  EXPECT_THAT(fault(idx_header(0x0d, {1, 1, 1}) + "1234"),
              HasSubstr("offset 2: expected type 08 (unsigned byte), found 0d (32-bit float)"));
  EXPECT_THAT(fault(idx_header(0x42, {1, 1, 1}) + "1"), HasSubstr("found 42 (no IDX type)"));
  EXPECT_THAT(fault(idx_images({3, 3, 3}), 1), HasSubstr("offset 3: expected 1 dimension, found 3"));
}

TEST_F(IdxTest, FindsAShortHeader) {
  const auto bytes = idx_images({5, 3, 4});
  for (std::size_t length = 0; length < 16; ++length) {
    EXPECT_THAT(fault(bytes.substr(0, length)), HasSubstr("the file ends")) << length;
  }
}

TEST_F(IdxTest, FindsMissingAndSurplusData) {
  const auto bytes = idx_images({5, 3, 4});
  EXPECT_THAT(
      fault(bytes.substr(0, 70)),
      HasSubstr("images: offset 4: expected 60 bytes of data (5 x 3 x 4, as the header says), found 54"));
  EXPECT_THAT(fault(bytes + "xx"), HasSubstr("found 62"));
  EXPECT_THAT(fault_of(gzip(bytes.substr(0, 70))),
              HasSubstr("unpacked offset 70: the data ends after 54 bytes; expected 60 (5 x 3 x 4)"));
  EXPECT_THAT(fault_of(gzip(bytes + "x")),
              HasSubstr("unpacked offset 76: expected the end of the data after 60 bytes"));
}

TEST_F(IdxTest, RefusesEmptyAndOverflowingSizes) {
  EXPECT_THAT(fault(idx_header(8, {0, 28, 28})),
              HasSubstr("offset 4: expected size 0 to be at least 1, found 0"));
  EXPECT_THAT(fault(idx_header(8, {5, 28, 0})), HasSubstr("offset 12"));
  EXPECT_THAT(fault(idx_header(8, {0xffffffff, 0xffffffff, 0xffffffff})),
              HasSubstr("offset 8: expected at most"));
  // 2^22 · 2^21 · 2^21 = 2^64 would wrap to 0.
  EXPECT_THAT(fault(idx_header(8, {1U << 22, 1U << 21, 1U << 21})), HasSubstr("expected at most"));
}

TEST_F(IdxTest, AHeaderThatLiesIsFoundBeforeAnythingIsAllocated) {
  const auto lie = idx_header(8, {60'000, 280, 280});  // 4.7 GB
  EXPECT_THAT(
      message_of(ErrorKind::data, [&] { IdxFile(file(lie + "data"), 3); }),
      HasSubstr("expected 4704000000 bytes of data (60000 x 280 x 280, as the header says), found 4"));
  EXPECT_THAT(message_of(ErrorKind::data, [&] { IdxFile(file(gzip(lie + "data")), 3); }),
              HasSubstr("at most in a gzip file of this size"));
}

TEST_F(IdxTest, ABombIsNotUnpackedBeyondItsHeader) {
  const auto bomb = gzip(idx_header(8, {2, 2, 2}) + std::string(200'000'000, '\0'));
  EXPECT_LT(bomb.size(), 1'000'000U);
  EXPECT_THAT(fault_of(bomb),
              HasSubstr("expected the end of the data after 8 bytes (2 x 2 x 2), found more"));
}

TEST_F(IdxTest, ReadsNoDataWithAWrongChecksum) {
  auto packed = gzip(idx_images({5, 3, 4}));
  packed[packed.size() - 6] = static_cast<char>(packed[packed.size() - 6] ^ 4);
  EXPECT_THAT(fault_of(packed), HasSubstr("the gzip checksum is wrong"));
}

}  // namespace
}  // namespace dtorch
