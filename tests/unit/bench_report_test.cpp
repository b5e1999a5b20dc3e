// What a benchmark's times mean, and how they are shown. The factors and the table's columns are nccl-tests'
// (doc/PERFORMANCE.md and its output).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/error.h"
#include "core/report/bandwidth.h"
#include "core/report/bench_table.h"

namespace dtorch::report {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

BenchRow row(const std::string& operation, const std::string& backend, std::int64_t bytes, double us) {
  BenchRow result;
  result.operation = operation;
  result.backend = backend;
  result.bytes = bytes;
  result.elements = bytes / 4;
  result.type = "float32";
  result.reduction = "sum";
  result.world_size = 4;
  result.iterations = 20;
  BenchTimes times;
  times.min_us = us / 2;
  times.p50_us = us;
  times.p99_us = us * 2;
  times.max_us = us * 3;
  times.skew_us = 0.25;
  times.slowest_rank = 3;
  times.wrong = 0;
  result.out_of_place = times;
  result.in_place = times;
  return result;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(BandwidthTest, FactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor("allreduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor("allreduce", 1), 0);
  for (const char* split : {"allgather", "reducescatter", "alltoall", "gather", "scatter"}) {
    EXPECT_DOUBLE_EQ(bus_factor(split, 4), 0.75) << split;
  }
  for (const char* plain : {"broadcast", "reduce", "sendrecv"})
    EXPECT_DOUBLE_EQ(bus_factor(plain, 4), 1) << plain;
}

TEST(BandwidthTest, AGigabyteIsABillionBytes) { EXPECT_DOUBLE_EQ(algorithm_bandwidth(2'000'000, 1000), 2); }

TEST(BandwidthTest, FitsALine) {
  std::vector<BenchRow> rows;
  for (const std::int64_t bytes : {4, 4096, 1 << 20, 64 << 20}) {
    rows.push_back(
        row("allreduce", "tcp", bytes, 7.5 + static_cast<double>(bytes) / 4000));  // 7.5 us and 4 GB/s
  }
  const auto fits = fit_rows(rows);
  ASSERT_EQ(fits.size(), 1U);
  EXPECT_THAT(fits[0].latency_us, DoubleNear(7.5, 1e-6));
  EXPECT_THAT(fits[0].gb_s, DoubleNear(4, 1e-6));
  EXPECT_THAT(fits[0].worst_error, DoubleNear(0, 1e-9));
}

TEST(BandwidthTest, OneSizeIsNoLine) { EXPECT_THAT(fit_rows({row("allreduce", "tcp", 4, 1)}), IsEmpty()); }

TEST(ExpectationTest, IsMetByBusBandwidthOrTime) {
  const BenchRow measured = row("allreduce", "tcp", 4 << 20, 1000);  // 4.19 GB/s, times 1.5
  for (const char* met : {"allreduce@4MiB>=6.2GB/s", "allreduce/tcp@4M>=6200MB/s", "allreduce@4194304<=1ms",
                          "allreduce@4MiB <= 1000 us"}) {
    const auto expectation = parse_expectation(met);
    EXPECT_TRUE(concerns(expectation, measured)) << met;
    EXPECT_THAT(unmet(expectation, measured), IsEmpty());
  }
  EXPECT_THAT(unmet(parse_expectation("allreduce@4MiB>=6.3GB/s"), measured), HasSubstr("6.291 GB/s"));
  EXPECT_THAT(unmet(parse_expectation("allreduce@4MiB<=0.9ms"), measured), HasSubstr("1000.00 us"));
  EXPECT_FALSE(concerns(parse_expectation("allreduce/shm@4MiB>=1GB/s"), measured));
  EXPECT_FALSE(concerns(parse_expectation("allgather@4MiB>=1GB/s"), measured));
  EXPECT_FALSE(concerns(parse_expectation("allreduce@8MiB>=1GB/s"), measured));
}

TEST(ExpectationTest, WhatIsNotUnderstoodIsUsage) {
  for (const char* wrong : {"", "allreduce", "allreduce>=5GB/s", "allreduce@4MiB=5GB/s", "allreduce@4MiB>=5",
                            "allreduce@4MiB>=5us", "allreduce@4MiB<=5GB/s", "allrduce@4MiB>=5GB/s",
                            "allreduce@4Mib>=5GB/s", "allreduce@4MiB>=..GB/s"}) {
    try {
      parse_expectation(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << wrong;
      EXPECT_THAT(error.help(), HasSubstr("GB/s"));
    }
  }
}

TEST(BenchTableTest, ReadersOfNcclTestsFindTheirColumns) {
  const auto fields = words(bench_line(row("allreduce", "tcp", 1 << 20, 500), 10));
  const std::vector<std::string> expected{"1048576", "262144",  "float",  "sum",  "-1",   "500.00", "2.10",
                                          "3.15",    "0",       "500.00", "2.10", "3.15", "0",      "250.00",
                                          "1000.00", "1500.00", "0.25",   "3",    "31%"};
  EXPECT_EQ(fields, expected);
  EXPECT_THAT(bench_footer({row("allreduce", "tcp", 1 << 20, 500)}),
              HasSubstr("# Avg bus bandwidth    : 3.14573"));
}

TEST(BenchTableTest, HeadsStandOverTheirColumns) {
  std::istringstream header(bench_header(row("allreduce", "tcp", 4, 1)));
  std::string line, names;
  while (std::getline(header, line)) {
    EXPECT_EQ(line.front(), '#');
    if (line.find("algbw") != std::string::npos) names = line;
  }
  const std::string data = bench_line(row("allreduce", "tcp", 1 << 20, 500), 10);
  EXPECT_EQ(names.find("redop") + 5, data.find("sum") + 3);
  EXPECT_EQ(names.rfind("slow") + 4, data.rfind(" 3 ") + 2);
}

TEST(BenchTableTest, WhatHasNoInPlaceFormIsNotAvailable) {
  BenchRow one = row("alltoall", "tcp", 1 << 20, 500);
  one.in_place.reset();
  one.reduction.clear();
  const auto fields = words(bench_line(one, 10));
  EXPECT_EQ(fields[3], "none");
  EXPECT_EQ(std::count(fields.begin(), fields.end(), "N/A"), 4);
}

TEST(BenchTableTest, WrongElementsAreCountedOverAllRows) {
  BenchRow bad = row("allreduce", "tcp", 4, 1);
  bad.in_place->wrong = 3;
  EXPECT_THAT(bench_footer({row("allreduce", "tcp", 8, 1), bad}),
              HasSubstr("# Out of bounds values : 3 FAILED"));
}

TEST(BenchTableTest, BackendsAreComparedSizeBySize) {
  const std::string text = bench_comparison(
      {row("allreduce", "gloo", 4, 400), row("allreduce", "tcp", 4, 8), row("allreduce", "tcp", 8, 9)});
  EXPECT_THAT(text, HasSubstr("N/A"));
  EXPECT_LT(text.find("400.00"), text.find("8.00"));
  EXPECT_THAT(bench_comparison({row("allreduce", "gloo", 4, 400)}), IsEmpty());
}

TEST(BenchTableTest, CsvHasAsManyFieldsAsItsHead) {
  const auto fields = [](const std::string& line) { return std::count(line.begin(), line.end(), ',') + 1; };
  std::istringstream lines(csv_lines(row("allreduce", "tcp", 4, 1)));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(fields(line), fields(csv_header()));
  EXPECT_EQ(count, 2);
}

TEST(BenchMessagesTest, SurviveTheWay) {
  BenchRow sent = row("allreduce", "tcp", 4, 1.5);
  sent.in_place.reset();
  const auto received = nlohmann::json::parse(nlohmann::json(sent).dump()).get<BenchRow>();
  EXPECT_EQ(nlohmann::json(received), nlohmann::json(sent));
  EXPECT_FALSE(received.in_place);
  EXPECT_EQ(received.out_of_place->p50_us, 1.5);
}

}  // namespace
}  // namespace dtorch::report
