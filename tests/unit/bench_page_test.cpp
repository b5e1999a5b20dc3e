// The benchmark's page: one file that needs nothing from elsewhere. How it looks is for a browser to say.
#include "core/report/bench_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/report/plot.h"

namespace dtorch::report {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

BenchRow row(const std::string& backend, std::int64_t bytes, double us) {
  BenchRow result;
  result.operation = "allreduce";
  result.backend = backend;
  result.bytes = bytes;
  result.elements = bytes / 4;
  result.type = "float32";
  result.world_size = 2;
  BenchTimes times;
  times.p50_us = us;
  times.wrong = 0;
  result.out_of_place = times;
  return result;
}

std::string page(const std::vector<BenchRow>& rows) {
  BenchRequest request;
  return bench_page(request, {10, {"node0", "node1"}}, rows);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(BenchPageTest, HasALineForEveryBackendInBothPlots) {
  const std::string html =
      page({row("gloo", 4, 400), row("tcp", 4, 8), row("gloo", 1024, 410), row("tcp", 1024, 9)});
  EXPECT_EQ(count(html, "<svg "), 2U);
  EXPECT_EQ(count(html, "<circle "), 8U);
  EXPECT_THAT(html, HasSubstr("node0, node1"));
  EXPECT_EQ(count(html, "<td>no</td>"), 4U);
}

TEST(BenchPageTest, AsksForNothingFromElsewhere) {
  const std::string html = page({row("gloo", 4, 400)});
  for (const char* outside : {"http:", "https:", "//", "src=", "<script", "<link", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

TEST(BenchPageTest, NamesAreNoMarkup) {
  BenchRow bad = row("<b>mine</b>", 4, 1);
  bad.note = "a < b & \"c\"";
  const std::string html = page({bad});
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
}

TEST(BenchPageTest, WhatWasNotTimedHasItsReasonAndNoPoint) {
  BenchRow refused = row("gloo", 4, 1);
  refused.out_of_place.reset();
  refused.note = "no average of Int";
  const std::string html = page({refused});
  EXPECT_THAT(html, HasSubstr("no average of Int"));
  EXPECT_EQ(count(html, "<circle "), 0U);
}

TEST(PlotTest, APlotOfNothingIsEmpty) { EXPECT_THAT(svg_of(Plot()), IsEmpty()); }

TEST(PlotTest, OnePointIsAPlotToo) {
  Plot plot;
  plot.series.push_back({"a", {{1024, 3}}});
  EXPECT_THAT(svg_of(plot), HasSubstr("a: 1KiB, 3"));
  EXPECT_THAT(svg_of(plot), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace dtorch::report
