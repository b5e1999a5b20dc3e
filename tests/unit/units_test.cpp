#include "core/base/units.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace dtorch {
namespace {

TEST(UnitsTest, ReadsDurationsWithUnits) {
  const std::vector<std::pair<const char*, std::chrono::milliseconds>> cases{
      {"30s", 30s},     {"500ms", 500ms}, {"2min", 2min},  {"1h", 1h},
      {"1.5s", 1500ms}, {"0s", 0ms},      {"0.001s", 1ms}, {"1.50h", 90min}};
  for (const auto& [text, value] : cases) EXPECT_EQ(parse_duration(text), value) << text;
}

TEST(UnitsTest, RefusesWhatIsNoDuration) {
  for (const char* text : {"",
                           "30",
                           "s",
                           "-1s",
                           "+1s",
                           "1 s",
                           "1m",
                           "1S",
                           "1..5s",
                           "1.2.3s",
                           ".5s",
                           "5.s",
                           "1e3s",
                           "0.0001s",
                           "1s ",
                           "99999999999999999999s",
                           "9999999999h",
                           "nan",
                           "infs",
                           "1d"}) {
    EXPECT_FALSE(parse_duration(text)) << text;
  }
}

TEST(UnitsTest, ReadsSizesWithUnits) {
  const std::vector<std::pair<const char*, std::int64_t>> cases{
      {"25MiB", 25 << 20}, {"512KiB", 512 << 10}, {"1GB", 1'000'000'000}, {"0B", 0}, {"1.5KiB", 1536},
      {"7B", 7},           {"2TiB", 2LL << 40},   {"1kB", 1000}};
  for (const auto& [text, value] : cases) EXPECT_EQ(parse_size(text), value) << text;
}

TEST(UnitsTest, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "25", "MiB", "-1B", "25 MiB", "25mib", "25M", "0.5B", "9999999TiB", "8388608TiB", "1e3B"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
}

TEST(UnitsTest, CanonicalTextsReadBack) {
  for (const std::int64_t value :
       {0LL, 1LL, 999LL, 1000LL, 1500LL, 60'000LL, 90'000LL, 3'600'000LL, 86'400'001LL}) {
    EXPECT_EQ(parse_duration(duration_text(std::chrono::milliseconds(value))),
              std::chrono::milliseconds(value));
  }
  for (const std::int64_t value : std::initializer_list<std::int64_t>{
           0, 1, 1023, 1024, 1 << 20, (1 << 20) + 1, 25 << 20, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(parse_size(size_text(value)), value) << size_text(value);
  }
  EXPECT_EQ(duration_text(90s), "90s");
  EXPECT_EQ(duration_text(30min), "30min");
  EXPECT_EQ(duration_text(0ms), "0s");
  EXPECT_EQ(size_text(25 << 20), "25MiB");
  EXPECT_EQ(size_text(1000), "1000B");
}

TEST(UnitsTest, HumanTextsAreShort) {
  EXPECT_EQ(human_duration(0.85), "850 ms");
  EXPECT_EQ(human_duration(42), "42.0 s");
  EXPECT_EQ(human_duration(185), "3m 05s");
  EXPECT_EQ(human_duration(7620), "2h 07m");
  EXPECT_EQ(human_duration(12 * 86'400 + 3 * 3600), "12d 03h");
  EXPECT_EQ(human_size(512), "512 B");
  EXPECT_EQ(human_size(1536 * 1024), "1.5 MiB");
  EXPECT_EQ(human_size(118 << 20), "118 MiB");
  EXPECT_EQ(human_count(950), "950");
  EXPECT_EQ(human_count(46'123), "46.1k");
  EXPECT_EQ(human_count(1'200'000), "1.20M");
}

TEST(UnitsTest, HumanTextsKeepTheirWidthForAnyValue) {
  for (double value = 1e-6; value < 1e30; value *= 1.7) {
    EXPECT_LE(human_duration(value).size(), 8U) << value;
    EXPECT_LE(human_count(value).size(), 6U) << value;
    EXPECT_LE(human_count(-value).size(), 7U) << value;
  }
  for (std::uint64_t value = 1; value < std::uint64_t{1} << 62; value = value * 3 / 2 + 1)
    EXPECT_LE(human_size(value).size(), 8U) << value;
  EXPECT_LE(human_size(std::numeric_limits<std::uint64_t>::max()).size(), 8U);
  EXPECT_EQ(human_count(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(human_duration(std::numeric_limits<double>::infinity()), "-");
}

}  // namespace
}  // namespace dtorch
