// What `dtorch run` prints where, seen from the descriptors that it writes to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/failure_text.h"
#include "cli/run_view.h"
#include "core/base/host.h"

namespace dtorch {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/** A file of no name that keeps what is written to it. */
class Capture {
 public:
  Capture() : fd_(::memfd_create("capture", MFD_CLOEXEC)) {}
  ~Capture() { ::close(fd_); }
  int fd() const { return fd_; }
  std::string text() const {
    std::string result(static_cast<std::size_t>(::lseek(fd_, 0, SEEK_END)), '\0');
    EXPECT_EQ(::pread(fd_, result.data(), result.size(), 0), static_cast<ssize_t>(result.size()));
    return result;
  }
  std::vector<json> json_lines() const {
    std::vector<json> lines;
    std::istringstream stream(text());
    for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
    return lines;
  }

 private:
  int fd_;
};

class ViewTest : public ::testing::Test {
 protected:
  RunViewOptions options() const {
    RunViewOptions options;
    options.job = "mnist";
    options.world_size = 2;
    options.backend = "auto";
    options.dataset = "mnist";
    options.interval = std::chrono::milliseconds(0);
    options.out_fd = out_.fd();
    options.err_fd = err_.fd();
    return options;
  }
  static StepRecord record(int rank) {
    StepRecord r;
    r.rank = rank;
    r.epochs = 1;
    r.steps_per_epoch = 10;
    r.epoch_step = r.step = 5;
    r.loss = rank == 0 ? 0.5 : std::nan("");
    r.step_ms = 1;
    return r;
  }
  static void run(RunView& view) {
    view.plan(json{{"backend", "gloo"}, {"dataset", {{"type", "fashion_mnist"}}}, {"world_size", 2}});
    view.phase(0, "training");
    view.step(record(0));
    view.step(record(1));
    view.tick();
    view.epoch({0, 0.5, 1000, 1});
    view.eval({0, 0.25, 0.975, 10'000, 0.5});
    view.log(-1, "info", "all is \x1b[31mwell");
    view.log(1, "warning", "careful");
    view.output(1, false, "printed");
    view.result({0.975, 0.5, 1000, 1.5, 2, "gloo", "fashion_mnist", 10, 1});
  }

  Capture out_, err_;
};

TEST_F(ViewTest, PlainLinesGoToStderrAndTheResultToStdout) {
  RunView view(options());
  run(view);
  EXPECT_EQ(view.finish({}), 0);
  EXPECT_THAT(out_.text(), AllOf(HasSubstr("test accuracy  97.50%"),
                                 HasSubstr("2 ranks, gloo, fashion_mnist"), Not(HasSubstr("epoch 1/1"))));
  const std::string log = err_.text();
  EXPECT_THAT(log, Not(HasSubstr("\x1b")));
  EXPECT_THAT(log, Not(HasSubstr("\r")));
  EXPECT_THAT(log,
              AllOf(HasSubstr("mnist: 2 ranks, gloo, fashion_mnist\n"),
                    HasSubstr("epoch 1/1 step 5/10 loss nan"), HasSubstr("epoch 1/1: test accuracy 97.50%"),
                    HasSubstr("[rank 1] warning: careful\n"), HasSubstr("[rank 1] printed\n")));
}

TEST_F(ViewTest, JsonLinesCarryEveryEvent) {
  RunViewOptions json_options = options();
  json_options.style.json = true;
  json_options.style.progress = Progress::none;
  RunView view(json_options);
  run(view);
  EXPECT_EQ(view.finish({}), 0);
  const std::vector<json> lines = out_.json_lines();
  std::vector<std::string> events;
  for (const json& line : lines) events.push_back(line.at("event"));
  EXPECT_EQ(events, (std::vector<std::string>{"plan", "step", "step", "epoch", "eval", "result"}));
  EXPECT_EQ(lines[1].at("loss"), 0.5);
  EXPECT_TRUE(lines[2].at("loss").is_null());
  for (const char* key :
       {"test_accuracy", "loss", "samples_per_s", "seconds", "world_size", "backend", "dataset"}) {
    EXPECT_TRUE(lines[5].contains(key)) << key;
  }
  EXPECT_FALSE(lines[5].contains("type"));
  EXPECT_THAT(err_.text(), Not(HasSubstr("epoch")));
}

TEST_F(ViewTest, QuietKeepsWarningsAndTheResult) {
  RunViewOptions quiet = options();
  quiet.style.quiet = true;
  quiet.style.progress = Progress::none;
  RunView view(quiet);
  run(view);
  view.finish({});
  EXPECT_EQ(err_.text(), "[rank 1] warning: careful\n[rank 1] printed\n");
  EXPECT_THAT(out_.text(), HasSubstr("97.50%"));
}

TEST_F(ViewTest, PlainLinesKeepTheirInterval) {
  RunViewOptions slow = options();
  slow.interval = std::chrono::hours(1);
  RunView view(slow);
  for (int i = 0; i < 100; ++i) {
    view.step(record(0));
    view.tick();
  }
  EXPECT_EQ(err_.text(), "");
}

TEST_F(ViewTest, ADryRunPrintsThePlan) {
  RunViewOptions dry = options();
  dry.dry_run = true;
  RunView view(dry);
  view.plan(json{{"backend", "gloo"}, {"model", {{"layers", {784, 10}}, {"parameters", 7850}}}});
  EXPECT_EQ(view.finish({}), 0);
  EXPECT_EQ(out_.text(), "backend: gloo\nmodel:\n  layers: [784,10]\n  parameters: 7850\n");
}

JobOutcome killed() {
  JobOutcome outcome;
  Failure failure;
  failure.kind = ErrorKind::lost;
  failure.message = "a rank was killed";
  failure.help = "look for the out-of-memory killer in `dmesg`";
  failure.rank = 1;
  failure.host = "node-a";
  failure.step = 120;
  failure.collective = "all_reduce #42 float32[407050]";
  failure.signal = SIGKILL;
  outcome.failure = failure;
  outcome.tail = {"one", "tw\x1bo"};
  return outcome;
}

TEST_F(ViewTest, AFailureIsToldToPeople) {
  RunView view(options());
  EXPECT_EQ(view.finish(killed()), 69);
  EXPECT_EQ(err_.text(),
            "error: a rank was killed\n"
            "  rank 1 on node-a, at step 120, in all_reduce #42 float32[407050], ended by SIGKILL (Killed)\n"
            "  last lines of rank 1:\n"
            "    | one\n"
            "    | tw?o\n"
            "help: look for the out-of-memory killer in `dmesg`\n");
  EXPECT_EQ(out_.text(), "");
}

TEST_F(ViewTest, AFailureIsAnEventToo) {
  RunViewOptions json_options = options();
  json_options.style.json = true;
  RunView view(json_options);
  EXPECT_EQ(view.finish(killed()), 69);
  const std::vector<json> lines = out_.json_lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].at("event"), "error");
  EXPECT_EQ(lines[0].at("kind"), "lost");
  EXPECT_EQ(lines[0].at("exit_code"), 69);
  EXPECT_EQ(lines[0].at("rank"), 1);
  EXPECT_EQ(lines[0].at("signal"), 9);
  EXPECT_EQ(lines[0].at("tail").size(), 2U);
  EXPECT_THAT(err_.text(), HasSubstr("a rank was killed"));
}

TEST_F(ViewTest, AReaderThatGoesAwayIsNoError) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  RunViewOptions json_options = options();
  json_options.style.json = true;
  json_options.out_fd = ends[1];
  RunView view(json_options);
  run(view);
  EXPECT_EQ(view.finish({}), 0);
  ::close(ends[1]);
}

TEST(FailureTextTest, NamesWhoIsMissing) {
  Failure failure;
  failure.kind = ErrorKind::timeout;
  failure.message = "rendezvous timed out after 5min";
  failure.missing_ranks = {1, 3};
  EXPECT_THAT(failure_text(failure, {}, false),
              AllOf(HasSubstr("error: rendezvous timed out"), HasSubstr("did not come: rank 1, 3")));
}

TEST(FailureTextTest, SpecErrorsStandAsTheyAre) {
  const Error error(ErrorKind::spec,
                    "x.yaml:1:2: error: unknown key 'a'\n    1 |  a: 1\n      |  ^\nhelp: remove it");
  EXPECT_EQ(failure_text(to_failure(error), {}, true), std::string(error.what()) + "\n");
}

TEST(FailureTextTest, OnlySpecErrorsCountAsPlaced) {
  Failure failure;
  failure.kind = ErrorKind::lost;
  failure.message = "rank 1 exited with code 3: a.py:4: error: \x1b[2Jbad";
  EXPECT_EQ(failure_text(failure, {}, false), "error: rank 1 exited with code 3: a.py:4: error: ?[2Jbad\n");
}

TEST(FailureTextTest, NothingInASpecErrorMovesTheCursor) {
  Failure failure;
  failure.kind = ErrorKind::spec;
  failure.message = "job.yaml:1:2: error: unknown key\n    1 | \ta\x1b[2J\n      | \t^";
  EXPECT_EQ(failure_text(failure, {}, false),
            "job.yaml:1:2: error: unknown key\n    1 |  a?[2J\n      |  ^\n");
}

struct OutputCase {
  OutputChoices choices;
  bool out_terminal, err_terminal;
  std::map<std::string, std::string> environment;
  Progress progress;
  bool colour;
};

TEST(FailureTextTest, OnlyAnotherMachinesPreflightIsNamed) {
  Failure failure;
  failure.kind = ErrorKind::spec;
  failure.message = "job.yaml:2:9: error: the rank on this machine needs too much";
  failure.host = host_name();
  EXPECT_EQ(failure_text(failure, {}, false), failure.message + "\n");
  failure.host = "node-b";
  EXPECT_EQ(failure_text(failure, {}, false), failure.message + "\n  on node-b\n");
}

TEST(OutputTest, DecidesAsPeopleExpect) {
  const std::map<std::string, std::string> xterm{{"TERM", "xterm-256color"}};
  const auto with = [&](const char* name, const char* value) {
    auto environment = xterm;
    environment[name] = value;
    return environment;
  };
  const auto automatic = ColorChoice::automatic;
  const std::vector<OutputCase> cases{
      {{}, true, true, xterm, Progress::board, true},
      {{}, true, false, xterm, Progress::plain, false},
      {{}, false, true, xterm, Progress::board, true},
      {{}, true, true, with("NO_COLOR", "1"), Progress::board, false},
      {{}, true, true, with("NO_COLOR", ""), Progress::board, true},
      {{}, true, true, with("TERM", "dumb"), Progress::plain, false},
      {{}, true, true, {}, Progress::plain, false},
      {{}, true, true, with("CI", "true"), Progress::plain, true},
      {{}, true, true, with("CI", "false"), Progress::board, true},
      {{ColorChoice::always, ProgressChoice::automatic, false, false},
       false,
       false,
       with("NO_COLOR", "1"),
       Progress::plain,
       true},
      {{ColorChoice::never, ProgressChoice::automatic, false, false},
       true,
       true,
       xterm,
       Progress::board,
       false},
      {{automatic, ProgressChoice::plain, false, false}, true, true, xterm, Progress::plain, true},
      {{automatic, ProgressChoice::none, false, false}, true, true, xterm, Progress::none, true},
      {{automatic, ProgressChoice::automatic, true, false}, true, true, xterm, Progress::none, true},
      {{automatic, ProgressChoice::automatic, false, true}, true, true, xterm, Progress::plain, true},
      {{automatic, ProgressChoice::automatic, false, true}, false, true, xterm, Progress::board, true},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const OutputCase& c = cases[i];
    const Surroundings around{c.out_terminal, c.err_terminal, [&](const char* name) -> const char* {
                                const auto found = c.environment.find(name);
                                return found == c.environment.end() ? nullptr : found->second.c_str();
                              }};
    const OutputStyle style = decide_output(c.choices, around);
    EXPECT_EQ(style.progress, c.progress) << "case " << i;
    EXPECT_EQ(style.stderr_colour, c.colour) << "case " << i;
  }
}

}  // namespace
}  // namespace dtorch
