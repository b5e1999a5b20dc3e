#include "core/report/board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/report/text.h"

namespace dtorch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

StepRecord record(int rank, double compute_ms = 1.0) {
  StepRecord r;
  r.rank = rank;
  r.host = "a";
  r.epochs = 5;
  r.epoch = 1;
  r.steps_per_epoch = 400;
  r.epoch_step = 100;
  r.step = 500;
  r.loss = 0.25 + rank * 0.125;
  r.samples_per_s = 20'000;
  r.step_ms = 2;
  r.compute_ms = compute_ms;
  r.comm_share = 0.25;
  r.data_share = 0.05;
  r.memory_bytes = 118 << 20;
  return r;
}

Board board_of(int ranks) {
  Board board("mnist", ranks, "gloo", "mnist");
  for (int rank = 0; rank < ranks; ++rank) {
    board.phase(rank, "training");
    board.update(record(rank));
  }
  return board;
}

/** Without colour codes. */
std::string plain(const std::string& line) {
  std::string result;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      i = line.find('m', i);
    } else {
      result += line[i];
    }
  }
  return result;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(BoardTest, ShowsARowForEachRank) {
  const auto lines = board_of(2).render({80, 24}, false);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0], "mnist  2 ranks  gloo  mnist");
  EXPECT_EQ(lines[1], "rank          loss samples/s     step  compute  comm  data   memory");
  EXPECT_EQ(lines[2], "   0        0.2500     20.0k  2.00 ms  1.00 ms   25%    5%  118 MiB");
  EXPECT_EQ(lines[3], "   1        0.3750     20.0k  2.00 ms  1.00 ms   25%    5%  118 MiB");
  // 3 epochs of 400 steps and 300 steps of 2 ms
  EXPECT_THAT(lines[4], AllOf(HasSubstr("epoch 2/5 [#"), HasSubstr("25%  step 100/400  3.0 s left")));
}

TEST(BoardTest, FitsEveryWindow) {
  for (const int ranks : {0, 1, 2, 3, 16, 17, 300}) {
    Board board = board_of(ranks);
    board.update(EpochRecord{0, 0.3, 40'000, 1.5});
    board.update(EvalRecord{0, 0.2, 0.9612, 10'000, 0.1});
    for (int columns = 0; columns <= 100; ++columns) {
      for (int rows = 0; rows <= 24; ++rows) {
        for (const bool colour : {false, true}) {
          const auto lines = board.render({columns, rows}, colour);
          ASSERT_LE(static_cast<int>(lines.size()), rows);
          for (const std::string& line : lines) ASSERT_LE(report::text_width(plain(line)), columns) << line;
          if (rows > 0 && columns > 0) ASSERT_FALSE(lines.empty());
          if (rows == 1 && columns >= 30 && ranks > 0) ASSERT_THAT(lines[0], HasSubstr("epoch 2/5"));
        }
      }
    }
  }
}

TEST(BoardTest, NarrowWindowsKeepWhatMattersMost) {
  const std::string text = joined(board_of(2).render({40, 24}, false));
  EXPECT_THAT(text, AllOf(HasSubstr("loss"), HasSubstr("samples/s"), HasSubstr("compute")));
  EXPECT_THAT(text, Not(HasSubstr("memory")));
}

TEST(BoardTest, ManyRanksAreSummedUp) {
  Board board = board_of(17);
  board.update(record(11, 3.0));
  const auto lines = board.render({80, 40}, false);
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_THAT(lines[2], AllOf(HasSubstr("min"), HasSubstr("0.2500")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("median"), HasSubstr("1.2500")));
  EXPECT_THAT(lines[4], AllOf(HasSubstr("max"), HasSubstr("2.2500"), HasSubstr("3.00 ms")));
  EXPECT_THAT(lines[5], AllOf(HasSubstr("rank 11"), HasSubstr("3.00 ms"), HasSubstr("slow")));
  EXPECT_EQ(board_of(16).render({80, 40}, false).size(), 19U);
}

TEST(BoardTest, ShortWindowsSumUpEarlier) {
  const auto lines = board_of(12).render({80, 8}, false);
  EXPECT_LE(lines.size(), 8U);
  EXPECT_THAT(joined(lines), AllOf(HasSubstr("median"), HasSubstr("epoch 2/5")));
}

TEST(BoardTest, TheSlowRankStandsOutByItsComputeTime) {
  Board board = board_of(4);
  // Rank 2 computes longer; all steps last equally long, as the others wait for it.
  board.update(record(2, 1.8));
  EXPECT_EQ(board.slow_rank(), 2);
  const auto lines = board.render({80, 24}, true);
  EXPECT_THAT(lines[4], AllOf(HasSubstr("   2"), HasSubstr("slow"), HasSubstr("\x1b[1;33m")));
  EXPECT_THAT(lines[3], Not(HasSubstr("\x1b[1;33m")));
  board.update(record(2, 1.1));
  EXPECT_EQ(board.slow_rank(), std::nullopt);
  EXPECT_EQ(board_of(1).slow_rank(), std::nullopt);
  // A rank that only waits longer (a slow network) is not slow.
  StepRecord waits = record(1);
  waits.comm_share = 0.9;
  waits.step_ms = 20;
  board.update(waits);
  EXPECT_EQ(board.slow_rank(), std::nullopt);
}

TEST(BoardTest, TellsWhoIsOnTheWay) {
  Board board("mnist", 3, "gloo", "mnist");
  EXPECT_EQ(board.plain_line(), "starting 3 ranks");
  board.phase(0, "joining");
  board.phase(2, "joining");
  EXPECT_EQ(board.plain_line(), "2 joining of 3 ranks");
  const std::string text = joined(board.render({80, 24}, false));
  EXPECT_THAT(text, AllOf(HasSubstr("   0      joining"), HasSubstr("   2      joining"),
                          HasSubstr("2 joining of 3 ranks")));
}

TEST(BoardTest, ShowsEvaluations) {
  Board board = board_of(2);
  board.update(EpochRecord{1, 0.31, 46'123, 2.6});
  EXPECT_THAT(joined(board.render({80, 24}, false)),
              HasSubstr("epoch 2/5: loss 0.3100, 46.1k samples/s, 2.6 s"));
  board.update(EvalRecord{1, 0.131, 0.9612, 10'000, 0.3});
  EXPECT_THAT(joined(board.render({80, 24}, false)),
              HasSubstr("epoch 2/5: test accuracy 96.12%, loss 0.1310"));
  board.phase(0, "evaluating");
  EXPECT_THAT(joined(board.render({80, 24}, false)), HasSubstr("evaluating"));
}

TEST(BoardTest, OneLineForLogs) {
  Board board = board_of(2);
  EXPECT_EQ(board.plain_line(),
            "epoch 2/5 step 100/400 loss 0.3125 40.0k samples/s step 2.00 ms comm 25% data 5% 3.0 s left");
  board.update(record(1, 1.9));
  EXPECT_THAT(board.plain_line(), HasSubstr("slow rank 1 (compute 1.90 ms)"));
}

TEST(BoardTest, SurvivesFiguresThatAreNone) {
  Board board = board_of(2);
  StepRecord bad = record(1);
  bad.loss = std::nan("");
  bad.samples_per_s = std::numeric_limits<double>::infinity();
  bad.step_ms = bad.compute_ms = bad.comm_share = bad.data_share = std::nan("");
  bad.memory_bytes = std::numeric_limits<std::uint64_t>::max();
  bad.steps_per_epoch = 0;
  board.update(bad);
  EXPECT_THAT(joined(board.render({80, 24}, false)), HasSubstr("nan"));
  EXPECT_THAT(board.plain_line(), HasSubstr("loss nan"));
  for (const std::string& line : board.render({80, 24}, false)) EXPECT_LE(report::text_width(line), 80);
}

TEST(BoardTest, NamesCannotMoveTheCursor) {
  Board board("a\x1b[2Jb\n漢字", 1, "g\rloo", "d\x9b");
  const std::string text = joined(board.render({80, 24}, false));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\r")), HasSubstr("a?[2Jb?漢字")));
  EXPECT_LE(report::text_width(board.render({5, 24}, false)[0]), 5);
}

}  // namespace
}  // namespace dtorch
