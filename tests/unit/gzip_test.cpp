#include "core/data/gzip.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/data_files.h"

namespace dtorch {
namespace {

using testing::gzip;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;
using testing::write_file;

// The contents in pieces of that size.
std::string read_all(const std::string& path, std::size_t piece = 1000) {
  InflatingReader reader(path);
  std::string all;
  std::vector<std::uint8_t> bytes(piece);
  while (const auto got = reader.read(bytes))
    all.append(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(got));
  return all;
}

std::string numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i * 7919 % 100'003) + " ";
  return text;
}

class InflatingReaderTest : public ::testing::Test {
 protected:
  std::string file(const std::string& bytes) { return write_file(folder_ / "file", bytes); }
  std::string fault(const std::string& bytes) {
    return message_of(ErrorKind::data, [&] { read_all(file(bytes)); });
  }
  TempFolder folder_;
};

TEST_F(InflatingReaderTest, ReadsPlainFilesAsTheyAre) {
  const auto text = numbers(200'000);
  EXPECT_EQ(read_all(file(text)), text);
  EXPECT_EQ(read_all(file("")), "");
  EXPECT_EQ(read_all(file("\x1f")), "\x1f");
}

TEST_F(InflatingReaderTest, InflatesInPiecesOfAnySize) {
  const auto text = numbers(200'000);
  const auto path = file(gzip(text));
  for (const std::size_t piece : {1'000UL, 65'536UL, 10'000'000UL})
    EXPECT_EQ(read_all(path, piece), text) << piece;
  EXPECT_EQ(read_all(file(gzip(numbers(50))), 1), numbers(50));
  EXPECT_EQ(read_all(file(gzip(""))), "");
}

TEST_F(InflatingReaderTest, MembersInARowAreOneStream) {
  EXPECT_EQ(read_all(file(gzip("one ") + gzip("") + gzip("two"))), "one two");
  // Boundaries anywhere in the reader's buffer, its end too.
  std::string many;
  std::string expected;
  for (int i = 0; i < 30'000; ++i) {
    many += gzip(std::to_string(i));
    expected += std::to_string(i);
  }
  EXPECT_EQ(read_all(file(many), 77), expected);
}

TEST_F(InflatingReaderTest, NamesTheOffsetOfAShortFile) {
  const auto packed = gzip(numbers(5'000));
  for (std::size_t length = 2; length < packed.size(); length += length < 20 ? 1 : 997) {
    EXPECT_THAT(fault(packed.substr(0, length)),
                HasSubstr("offset " + std::to_string(length) + ": the file ends in the middle"));
  }
  EXPECT_THAT(fault(packed.substr(0, packed.size() - 1)), HasSubstr(folder_ / "file"));
  EXPECT_THAT(fault(packed + packed.substr(0, 40)), HasSubstr("in the middle of its gzip data"));
}

TEST_F(InflatingReaderTest, ShowsBothChecksums) {
  const std::string text = "some text";
  auto packed = gzip(text);
  packed[packed.size() - 8] = static_cast<char>(packed[packed.size() - 8] ^ 1);
  const auto right =
      static_cast<std::uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
  char expected[32];
  char found[32];
  std::snprintf(expected, sizeof expected, "expected CRC-32 %08x", right ^ 1);
  std::snprintf(found, sizeof found, "has %08x", right);
  EXPECT_THAT(fault(packed), HasSubstr(expected));
  EXPECT_THAT(fault(packed), HasSubstr(found));
}

TEST_F(InflatingReaderTest, ShowsBothLengths) {
  auto packed = gzip("some text");
  packed[packed.size() - 4] = static_cast<char>(77);
  EXPECT_THAT(fault(packed), HasSubstr("expected 77 bytes modulo 2^32, found 9"));
}

TEST_F(InflatingReaderTest, FindsDamageAnywhere) {
  const auto text = numbers(3'000);
  const auto packed = gzip(text);
  for (std::size_t i = 10; i < packed.size(); i += 53) {
    auto damaged = packed;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_THAT(fault(damaged), HasSubstr("offset ")) << i;
  }
}

TEST_F(InflatingReaderTest, RefusesWhatFollowsTheLastMember) {
  const auto packed = gzip("text");
  EXPECT_THAT(fault(packed + "rubbish"), HasSubstr("offset " + std::to_string(packed.size()) +
                                                   ": expected the end of the file, or another gzip member"));
  EXPECT_THAT(fault(packed + "rubbish"), HasSubstr("found 7 bytes that start with 72"));
  EXPECT_THAT(fault(packed + "\x1f"), HasSubstr("in the middle"));
  EXPECT_THAT(fault(packed + "\x1fx"), HasSubstr("found 2 bytes that start with 1f"));
}

TEST_F(InflatingReaderTest, RefusesGzipHeadersItDoesNotKnow) {
  auto method = gzip("text");
  method[2] = 7;
  EXPECT_THAT(fault(method), HasSubstr("unknown compression method"));
  auto flags = gzip("text");
  flags[3] = static_cast<char>(0xe0);
  EXPECT_THAT(fault(flags), HasSubstr("unknown header flags"));
}

TEST_F(InflatingReaderTest, BoundsWhatCanComeOfAFile) {
  const auto packed = gzip(std::string(10'000'000, '\0'));
  const InflatingReader reader(file(packed));
  EXPECT_TRUE(reader.compressed());
  EXPECT_GE(reader.most_bytes(), 10'000'000U);
  EXPECT_EQ(reader.most_bytes(), packed.size() * 1032);
  EXPECT_EQ(InflatingReader(file("plain")).most_bytes(), 5U);
}

TEST_F(InflatingReaderTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(message_of(ErrorKind::data, [&] { InflatingReader(folder_ / "none"); }),
              HasSubstr("none: open: No such file"));
  EXPECT_THAT(message_of(ErrorKind::data, [&] { InflatingReader(folder_.path().string()); }),
              HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of(ErrorKind::data, [&] { InflatingReader(folder_ / "pipe"); }),
              HasSubstr("not a regular file"))
      << "must not wait for a writer";
}

}  // namespace
}  // namespace dtorch
