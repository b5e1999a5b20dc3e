// The launcher's parts by themselves; tests/integration/launch_*.py see them together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "core/launch/cleanup.h"
#include "core/launch/explain.h"
#include "core/launch/first_cause.h"
#include "core/launch/offer.h"
#include "core/launch/output.h"
#include "core/launch/rank_environment.h"
#include "core/launch/signals.h"
#include "core/launch/spawn.h"

namespace dtorch {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

Failure failure_of_rank(int rank, const std::string& collective = "") {
  Failure failure;
  failure.rank = rank;
  failure.collective = collective;
  return failure;
}

TEST(FirstCauseTest, PrefersADeathToComplaintsThatCameBefore) {
  FirstCause cause;
  const auto start = Clock::now();
  cause.add(failure_of_rank(0, "all_reduce #3"), Evidence::consequence, start);
  cause.add(failure_of_rank(2), Evidence::timed_out, start + milliseconds(1));
  EXPECT_GT(cause.due(), start + milliseconds(100));
  cause.add(failure_of_rank(1), Evidence::killed, start + milliseconds(20));
  EXPECT_LE(cause.due(), start + milliseconds(20));
  EXPECT_EQ(cause.failure().rank, 1);
  EXPECT_EQ(cause.failure().collective, "all_reduce #3");
}

TEST(FirstCauseTest, PrefersTheEarlierOfTwoAlike) {
  FirstCause cause;
  const auto start = Clock::now();
  cause.add(failure_of_rank(3), Evidence::reported, start);
  cause.add(failure_of_rank(1), Evidence::reported, start + milliseconds(1));
  EXPECT_EQ(cause.failure().rank, 3);
}

TEST(LineSplitterTest, JoinsPiecesAndCutsOverlongLines) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto collect = [&](const std::string& line) { lines.push_back(line); };
  splitter.feed("ab", collect);
  splitter.feed("c\n\nde", collect);
  EXPECT_THAT(lines, ElementsAre("abc", ""));
  splitter.finish(collect);
  EXPECT_THAT(lines, ElementsAre("abc", "", "de"));
  lines.clear();
  splitter.feed(std::string(200'000, 'x') + "\n", collect);
  std::string joined;
  for (const auto& line : lines) joined += line;
  EXPECT_GT(lines.size(), 3U);
  EXPECT_EQ(joined, std::string(200'000, 'x'));
}

TEST(RankOutputTest, TellsOfALogThatCannotBeWrittenAndNobodyElse) {
  std::vector<std::string> lines, failures;
  testing::internal::CaptureStderr();
  RankOutput output(
      "/dev/full", [&](bool, const std::string& line) { lines.push_back(line); },
      [&](const std::string& text) { failures.push_back(text); });
  ASSERT_EQ(::write(output.stdout_writer(), "a\nb\n", 4), 4);
  output.close_writers();
  output.finish();
  EXPECT_THAT(lines, ElementsAre("a", "b"));
  EXPECT_THAT(failures, ElementsAre(HasSubstr("cannot write the log /dev/full")));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(OfferTest, DamagedOnesAreRefusedOrWithinBounds) {
  const Offer whole{"version: 1\nname: \"a\\tb\"\n", {2, 3, 1}, {{"ranks per node", "[2,3,1]"}}, "nodes.1"};
  EXPECT_EQ(read_offer(to_text(whole)), whole);
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  const std::string alphabet = "{}[]\",:0-9e.\\\0\xff";
  int refused = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string text = to_text(whole);
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
      const std::size_t at = below(text.size());
      if (below(3) == 0)
        text.erase(at, 1 + below(5));
      else if (below(2) == 0)
        text.insert(at, text.substr(below(text.size()), below(20)));
      else
        text[at] = alphabet[below(alphabet.size())];
      if (text.empty()) text = "x";
    }
    try {
      const Offer offer = read_offer(text);
      for (const int ranks : offer.nodes)
        ASSERT_THAT(ranks, testing::AllOf(testing::Ge(1), testing::Le(4096))) << text;
      ASSERT_EQ(offer.nodes.empty(), offer.spec.empty()) << text;
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.kind(), ErrorKind::disagree) << text;
    }
  }
  EXPECT_GT(refused, 500);
}

SpawnRequest shell(const std::string& script) {
  SpawnRequest request;
  request.program = "/bin/sh";
  request.arguments = {"sh", "-c", script};
  request.environment = {"PATH=/usr/bin:/bin", std::string(kJobTag) + "=launch-test"};
  return request;
}

ExitStatus wait_for(ChildProcess& process) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!process.try_wait() && !deadline.expired()) std::this_thread::sleep_for(milliseconds(1));
  return process.try_wait().value();
}

TEST(SpawnTest, ReportsCodesAndSignals) {
  ChildProcess code = spawn(shell("exit 3"));
  EXPECT_EQ(wait_for(code).shell_code(), 3);
  ChildProcess signal = spawn(shell("kill -USR1 $$"));
  EXPECT_EQ(wait_for(signal).signal, SIGUSR1);
  EXPECT_EQ(signal.try_wait()->shell_code(), 128 + SIGUSR1);
}

TEST(SpawnTest, SaysWhyAProgramCannotBeRun) {
  SpawnRequest request = shell("");
  request.program = "/etc/passwd";
  EXPECT_THROW(spawn(request), Error);
  EXPECT_FALSE(find_program("no-such-program-anywhere"));
  EXPECT_TRUE(find_program("sh"));
}

TEST(SpawnTest, ChildrenStartWithDefaultSignalsAndAGroupOfTheirOwn) {
  const SignalWatch blocked;
  ChildProcess process =
      spawn(shell("test $(ps -o pgid= -p $$ 2>/dev/null || echo $$) -eq $$ && kill -TERM $$"));
  EXPECT_EQ(wait_for(process).signal, SIGTERM);
}

TEST(SignalWatchTest, KeepsSignalsFromInterrupting) {
  SignalWatch watch;
  ::raise(SIGTERM);
  ::raise(SIGINT);
  EXPECT_THAT(watch.take(), testing::UnorderedElementsAre(SIGTERM, SIGINT));
  EXPECT_TRUE(watch.take().empty());
}

TEST(CleanupTest, FindsAndKillsWhatLeftItsGroup) {
  const std::string tag = make_job_tag();
  SpawnRequest request = shell("setsid sh -c 'sleep 1000 & sleep 1000' & sleep 1000 & wait");
  request.environment.back() = std::string(kJobTag) + "=" + tag;
  ChildProcess process = spawn(request);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (tagged_processes(tag).size() < 5 && !deadline.expired())
    std::this_thread::sleep_for(milliseconds(5));
  ASSERT_GE(tagged_processes(tag).size(), 4U);
  kill_job({}, tag, Deadline::after(std::chrono::seconds(10)));
  wait_for(process);
  EXPECT_TRUE(tagged_processes(tag).empty());
  EXPECT_TRUE(tagged_processes(tag.substr(0, tag.size() - 1)).empty());
}

TEST(RankEnvironmentTest, ReplacesWhatAnOuterLauncherSet) {
  ::setenv("RANK", "77", 1);
  ::setenv("MASTER_PORT", "1", 1);
  RankPlace place;
  place.rank = 3;
  place.threads = 2;
  const auto environment = rank_environment(place);
  EXPECT_THAT(environment, Contains("RANK=3"));
  EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=2"));
  EXPECT_THAT(environment, testing::Not(Contains(HasSubstr("MASTER_PORT"))));
  EXPECT_THAT(environment, testing::Not(Contains("RANK=77")));
  ::unsetenv("RANK");
  ::unsetenv("MASTER_PORT");
}

TEST(RankEnvironmentTest, SharesCoresOutWithoutOverlap) {
  const auto all = allowed_cores();
  const int ranks = std::max(1, static_cast<int>(all.size()) / 2);
  std::vector<int> joined;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const int core : cores_of(rank, ranks)) joined.push_back(core);
  }
  EXPECT_EQ(joined, all);
  EXPECT_EQ(cores_of(0, static_cast<int>(all.size()) + 1).size(), 1U);
}

TEST(ExplainTest, ReadsErrorFilesOfBothForms) {
  const std::string path = testing::TempDir() + "launch_test_error.json";
  for (const char* text :
       {R"({"message": "why", "timestamp": 1})", R"({"message": {"message": "why", "extraInfo": {}}})"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(read_error_file(path), "why");
  }
  std::ofstream(path) << "{damaged";
  EXPECT_EQ(read_error_file(path), "");
  std::filesystem::remove(path);
  EXPECT_EQ(read_error_file(path), "");
}

TEST(ExplainTest, SeesAStoppedProcess) {
  ChildProcess process = spawn(shell("sleep 1000"));
  EXPECT_FALSE(is_stopped(process.pid()));
  process.signal(SIGSTOP);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (!is_stopped(process.pid()) && !deadline.expired()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(is_stopped(process.pid()));
  process.signal_group(SIGKILL);
  EXPECT_EQ(wait_for(process).signal, SIGKILL);
}

}  // namespace
}  // namespace dtorch
