// What YAML a spec may use, and how its text is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/base/nearest.h"
#include "core/job/interpolate.h"
#include "core/job/load.h"

namespace dtorch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kMinimal = "version: 1\nmodel: mlp\ndataset: mnist\n";

/** "line:column message" of every problem. */
std::vector<std::string> problems(const std::string& text, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> result;
  try {
    parse_job(text, "spec", overrides);
  } catch (const SpecError& error) {
    for (const Diagnostic& d : error.diagnostics()) {
      result.push_back((d.line > 0 ? std::to_string(d.line) + ":" + std::to_string(d.column) : d.file) + " " +
                       d.message);
    }
  }
  return result;
}

/** A folder of its own for a test's files. */
class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "dtorch-spec-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  static std::string error_of(const std::string& path) {
    try {
      load_job(path, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::spec);
      return std::string(error.what()) + " | " + error.help();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST(YamlTest, RefusesWhatASpecMayNotUse) {
  EXPECT_THAT(problems(kMinimal + "optimizer: &o {lr: 1}\n"), ElementsAre(HasSubstr("4:12 YAML anchors")));
  EXPECT_THAT(problems(kMinimal + "name: *o\n"), ElementsAre(HasSubstr("not valid YAML")));
  EXPECT_THAT(problems(kMinimal + "loss: &a cross_entropy\noptimizer: {lr: *a}\n"),
              ElementsAre(HasSubstr("4:7 YAML anchors"), HasSubstr("5:17 YAML aliases")));
  EXPECT_THAT(problems(kMinimal + "seed: !!int 3\n"), ElementsAre(HasSubstr("4:7 YAML tags")));
  EXPECT_THAT(problems(kMinimal + "seed: ! 3\n"), ElementsAre(HasSubstr("4:7 YAML tags")));
  EXPECT_THAT(problems(kMinimal + "optimizer: {<<: {lr: 1}}\n"),
              ElementsAre(HasSubstr("4:13 YAML merge keys")));
  EXPECT_THAT(problems(kMinimal + "---\nversion: 1\n"), ElementsAre(HasSubstr("4:1 a second YAML document")));
  EXPECT_THAT(problems(kMinimal + "seed: 1\nepochs: 2\nseed: 2\n"), ElementsAre("6:1 duplicate key 'seed'"));
  EXPECT_THAT(problems(kMinimal + "optimizer: {lr: 1, momentum: 0, 'lr': 1}\n"),
              ElementsAre("4:33 duplicate key 'lr'"));
  EXPECT_THAT(problems(kMinimal + "? [a, b]\n: 1\n"), ElementsAre("4:3 a key must be text, not a list"));
  EXPECT_THAT(problems(kMinimal + "~: 1\n"), ElementsAre("4:1 a key must be text, not nothing"));
}

TEST(YamlTest, SaysWhereTheSyntaxBreaks) {
  EXPECT_THAT(problems(kMinimal + "optimizer: {lr: 0.1\nepochs: 3\n"),
              ElementsAre(HasSubstr("not valid YAML")));
  for (const char* text :
       {"name: 'open\n", "name: 'open", "name: 'it''s\n", "name: \"open\\\"\n", "name: \"open\n\n"}) {
    EXPECT_THAT(problems(kMinimal + text), ElementsAre(HasSubstr("not valid YAML"))) << text;
  }
  for (const char* text : {"name: 'it''s'\n", "name: \"a\\\"b\"\n", "name: ''''\n"}) {
    EXPECT_THAT(problems(kMinimal + text), ElementsAre()) << text;
  }
  EXPECT_THAT(problems(kMinimal + "name: a: b\n"), ElementsAre(HasSubstr("4:8 not valid YAML")));
  // What came before the break is told too.
  EXPECT_THAT(problems("seed: 1\nseed: 2\nname: a: b\n"),
              ElementsAre("2:1 duplicate key 'seed'", HasSubstr("3:8 not valid YAML")));
}

TEST(YamlTest, CountsColumnsInCharacters) {
  EXPECT_THAT(problems(kMinimal + "model: {type: mlp, äöü€😀: 1}\n"),
              ElementsAre(HasSubstr("4:1 duplicate key 'model'")));
  EXPECT_THAT(problems("version: 1\ndataset: mnist\nmodel: {\"ä€😀\": 1, typ: mlp, type: mlp}\n"),
              ElementsAre("3:9 unknown key 'model.ä€😀'", "3:19 unknown key 'model.typ'"));
  EXPECT_THAT(problems(kMinimal + "loader: {\tworkers: 1,\tx: 2}\n"),
              ElementsAre("4:23 unknown key 'loader.x'"));
  EXPECT_THAT(problems("\xEF\xBB\xBFversion: 1\nmodel: mlp\ndataset: mnist\n"), ElementsAre());
  EXPECT_THAT(problems("\xEF\xBB\xBFversionn: 1\nversion: 1\nmodel: mlp\ndataset: mnist\n"),
              ElementsAre("1:1 unknown key 'versionn'"));
  EXPECT_THAT(problems("version: 1\r\nmodel: mlp\r\ndataset: mnist\r\nx: 1\r\n"),
              ElementsAre("4:1 unknown key 'x'"));
}

TEST(YamlTest, RefusesWhatIsNotText) {
  EXPECT_THAT(problems(kMinimal + "name: \xff\n"), ElementsAre("4:7 not UTF-8 text (byte 0xFF)"));
  EXPECT_THAT(problems(kMinimal + "name: \xc0\xaf\n"),
              ElementsAre("4:7 not UTF-8 text (byte 0xC0)"));  // overlong '/'
  EXPECT_THAT(problems(kMinimal + "name: \xed\xa0\x80\n"),
              ElementsAre("4:7 not UTF-8 text (byte 0xED)"));  // surrogate
  EXPECT_THAT(problems(kMinimal + "name: \xe2\x82"),
              ElementsAre("4:7 not UTF-8 text (byte 0xE2)"));  // cut off
  EXPECT_THAT(problems(kMinimal + "name: a\x1b[31m\nseed: \x07\n"),
              ElementsAre("4:8 control character U+001B", "5:7 control character U+0007"));
  EXPECT_THAT(problems(kMinimal + "name: a\rb\n"), ElementsAre("4:8 a carriage return that ends no line"));
  EXPECT_THAT(problems(std::string("\x7f"
                                   "ELF\0\0",
                                   6)),
              ElementsAre(HasSubstr("1:1 control character"), HasSubstr("1:5 a binary file")));
  EXPECT_THAT(problems(kMinimal + "name: \"a\\nb\"\n"),
              ElementsAre("4:7 'name' has a line break or control character"));
}

TEST(YamlTest, SurvivesBombs) {
  const std::string deep(100'000, '[');
  EXPECT_THAT(problems(kMinimal + "name: " + deep), ElementsAre(HasSubstr("nested over 64 deep")));
  const std::string closed = kMinimal + "name: " + std::string(60, '[') + std::string(60, ']');
  EXPECT_THAT(problems(closed), ElementsAre("4:7 'name' must be text, not a list"));
  std::string maps = kMinimal + "name: ";
  for (int i = 0; i < 10'000; ++i) maps += "{a: ";
  EXPECT_THAT(problems(maps), ElementsAre(HasSubstr("nested over 64 deep")));
  std::string dashes = kMinimal + "name:\n  ";
  for (int i = 0; i < 10'000; ++i) dashes += "- ";
  EXPECT_THAT(problems(dashes), ElementsAre(HasSubstr("nested over 64 deep")));
  std::string laughs = kMinimal + "a: &a [lol, lol]\n";
  for (char c = 'b'; c < 'z'; ++c)
    laughs += std::string(1, c) + ": &" + c + " [*" + char(c - 1) + ", *" + char(c - 1) + "]\n";
  EXPECT_GT(problems(laughs).size(), 20U);
  EXPECT_LE(problems(laughs).size(), 100U);
  std::string keys = kMinimal;
  for (int i = 0; i < 60'000; ++i) keys += "key" + std::to_string(i) + ": 1\n";
  EXPECT_EQ(problems(keys).size(), 100U);
  EXPECT_THROW(parse_job(std::string((1 << 20) + 1, '#'), "spec"), Error);
  EXPECT_NO_THROW(parse_job(kMinimal + std::string((1 << 20) - kMinimal.size(), '#'), "spec"));
}

TEST(YamlTest, EmptyAndOtherShapes) {
  for (const char* text : {"", "\n\n", "# nothing\n", "---\n", "null\n", "~"}) {
    EXPECT_THAT(problems(text), ElementsAre(HasSubstr("the job spec is empty"))) << text;
  }
  EXPECT_THAT(problems("- a\n- b\n"),
              ElementsAre("1:1 a job spec is made of 'key: value' lines, not a list"));
  EXPECT_THAT(problems("mnist\n"),
              ElementsAre("1:1 a job spec is made of 'key: value' lines, not the text 'mnist'"));
  EXPECT_THAT(problems("{}\n"), ElementsAre("1:1 missing key 'version'", "1:1 missing key 'model'",
                                            "1:1 missing key 'dataset'"));
}

TEST(YamlTest, ShowsTheLineAndACaret) {
  try {
    parse_job(kMinimal + "optimzer: {lr: 1}\n", "configs/x.yaml");
    FAIL();
  } catch (const SpecError& error) {
    EXPECT_STREQ(error.what(),
                 "configs/x.yaml:4:1: error: unknown key 'optimzer'\n"
                 "    4 | optimzer: {lr: 1}\n"
                 "      | ^~~~~~~~\n"
                 "help: did you mean 'optimizer'?");
  }
}

TEST(YamlTest, CutsLongLinesAroundTheCaret) {
  try {
    parse_job("version: 1\nmodel: mlp\ndataset: mnist\nloader: {workers: 1, " + std::string(900, ' ') +
                  "wrong: 2}\n",
              "spec");
    FAIL();
  } catch (const SpecError& error) {
    std::istringstream lines(error.what());
    std::string head, source, caret;
    std::getline(lines, head);
    std::getline(lines, source);
    std::getline(lines, caret);
    EXPECT_THAT(source, HasSubstr("wrong: 2}"));
    EXPECT_LT(source.size(), 150U);
    // The ellipsis is one character and three bytes.
    EXPECT_EQ(source.find("wrong") - 2, caret.find('^'));
  }
}

TEST(YamlTest, KeepsTerminalsSafe) {
  // An override comes from the command line and may hold anything.
  try {
    parse_job(kMinimal, "spec", {"name=\x1b[2J"});
    FAIL();
  } catch (const SpecError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\x1b")));
    EXPECT_THAT(error.what(), HasSubstr("control character U+001B"));
  }
}

TEST(InterpolationTest, TakesTheEnvironmentOrTheDefault) {
  ::setenv("DTORCH_TEST_RANKS", "3", 1);
  ::setenv("DTORCH_TEST_EMPTY", "", 1);
  ::unsetenv("DTORCH_TEST_UNSET");
  EXPECT_EQ(parse_job(kMinimal + "world_size: ${env:DTORCH_TEST_RANKS}\n", "spec").world_size, 3);
  EXPECT_EQ(parse_job(kMinimal + "world_size: ${env:DTORCH_TEST_UNSET:-4}\n", "spec").world_size, 4);
  EXPECT_EQ(parse_job(kMinimal + "world_size: ${env:DTORCH_TEST_EMPTY:-5}\n", "spec").world_size, 5);
  EXPECT_EQ(parse_job(kMinimal + "optimizer: {lr: \"${env:DTORCH_TEST_UNSET:-0.5}\"}\n", "spec").optimizer.lr,
            0.5);
  EXPECT_EQ(
      parse_job(kMinimal + "name: run-${env:DTORCH_TEST_RANKS}-${env:DTORCH_TEST_UNSET:-x}\n", "spec").name,
      "run-3-x");
  EXPECT_EQ(parse_job(kMinimal + "name: ${env:DTORCH_TEST_RANKS}\n", "spec").name, "3");
  EXPECT_EQ(parse_job(kMinimal + "name: $${env:X}\n", "spec").name, "${env:X}");
  EXPECT_EQ(parse_resolved(kMinimal + "name: $${env:X}\n", "spec").name, "${env:X}");
  EXPECT_THROW(parse_resolved(kMinimal + "name: ${env:DTORCH_TEST_RANKS}\n", "spec"), SpecError);
  EXPECT_THROW(parse_resolved(kMinimal + "name: ${env:DTORCH_TEST_UNSET:-x}\n", "spec"), SpecError);
  EXPECT_EQ(parse_job(kMinimal, "spec", {"name=${env:DTORCH_TEST_RANKS}"}).name, "3");
}

TEST(InterpolationTest, RefusesEverythingElse) {
  ::unsetenv("DTORCH_TEST_UNSET");
  EXPECT_THAT(problems(kMinimal + "name: ${env:DTORCH_TEST_UNSET}\n"),
              ElementsAre("4:7 environment variable DTORCH_TEST_UNSET is not set"));
  EXPECT_THAT(problems(kMinimal + "name: ${HOME}\n"), ElementsAre("4:7 unknown interpolation '${HOME}'"));
  EXPECT_THAT(problems(kMinimal + "name: \"${env:}\"\n"),
              ElementsAre("4:7 '' is not a name of an environment variable"));
  EXPECT_THAT(problems(kMinimal + "name: \"${env:A\"\n"), ElementsAre("4:7 '${' without its '}'"));
  ::setenv("DTORCH_TEST_BAD", "a\x1b[0m", 1);
  EXPECT_THAT(problems(kMinimal + "name: ${env:DTORCH_TEST_BAD}\n"),
              ElementsAre("4:7 the environment variable's value has control characters"));
  // A value is taken as it is: no second round.
  ::setenv("DTORCH_TEST_NESTED", "${env:HOME}", 1);
  EXPECT_EQ(parse_job(kMinimal + "name: n${env:DTORCH_TEST_NESTED}\n", "spec").name, "n${env:HOME}");
  EXPECT_EQ(
      parse_job(kMinimal + "nodes: {interface: \"${env:DTORCH_TEST_UNSET:-}\"}\n", "spec").nodes.interface,
      "");
}

TEST(InterpolationTest, EscapingIsUndone) {
  for (const char* text : {"", "$", "${", "$${", "$$${", "a${env:X:-y}b", "$}{$", "${${"}) {
    const job::Interpolated back = job::interpolate(job::escape_interpolation(text), job::Variables::replace);
    EXPECT_EQ(back.text, text);
    EXPECT_FALSE(back.any);
  }
}

TEST(SuggestTest, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("mnsit", "mnist"), 1U);  // neighbours swapped
  const std::array<std::string_view, 3> words{"optimizer", "epochs", "lr"};
  EXPECT_EQ(nearest("optimzer", words), "optimizer");
  EXPECT_EQ(nearest("Epochs", words), "epochs");
  EXPECT_EQ(nearest("zz", words), "");
  EXPECT_EQ(nearest("banana", words), "");
}

TEST_F(FileTest, ExtendsMergesMapsAndReplacesLists) {
  write("base/common.yaml", kMinimal +
                                "optimizer: {lr: 0.5, momentum: 0.9}\nnodes: {hosts: [a, b]}\nworld_size: "
                                "2\ninit_method: env://\n");
  const std::string path = write("job.yaml",
                                 "extends: base/common.yaml\noptimizer: {lr: 0.25}\nnodes: {hosts: "
                                 "['c:2']}\nmodel: {activation: none}\n");
  const JobSpec spec = load_job(path, {"optimizer.momentum=0.5"});
  EXPECT_EQ(spec.optimizer.lr, 0.25);
  EXPECT_EQ(spec.optimizer.momentum, 0.5);
  ASSERT_EQ(spec.nodes.hosts.size(), 1U);
  EXPECT_EQ(spec.nodes.hosts[0].name, "c");
  EXPECT_EQ(spec.model.activation, "none");
  EXPECT_EQ(spec.model.type, "mlp");
}

TEST_F(FileTest, ErrorsOfAnExtendedFileNameThatFile) {
  write("base.yaml", "version: 1\nmodel: mlp\ndataset: mnist\nepochs: many\n");
  const std::string path = write("job.yaml", "extends: base.yaml\nseed: x\n");
  try {
    load_job(path, {"eval.every=-1"});
    FAIL();
  } catch (const SpecError& error) {
    ASSERT_EQ(error.diagnostics().size(), 3U);
    EXPECT_EQ(error.diagnostics()[0].file, path);
    EXPECT_EQ(error.diagnostics()[0].line, 2);
    EXPECT_EQ(error.diagnostics()[1].file, (folder_ / "base.yaml").string());
    EXPECT_EQ(error.diagnostics()[1].line, 4);
    EXPECT_EQ(error.diagnostics()[1].column, 9);
    EXPECT_EQ(error.diagnostics()[2].file, "-s eval.every=-1");
    EXPECT_EQ(error.diagnostics()[2].line, 0);
  }
}

TEST_F(FileTest, RefusesCyclesAndBadBases) {
  write("a.yaml", "extends: ./sub/../b.yaml\n");
  write("b.yaml", "extends: a.yaml\n");
  fs::create_directories(folder_ / "sub");
  EXPECT_THAT(error_of((folder_ / "a.yaml").string()), HasSubstr("b.yaml:1:10: error: '"));
  EXPECT_THAT(error_of((folder_ / "a.yaml").string()), HasSubstr("extends itself"));
  EXPECT_THAT(error_of(write("self.yaml", "extends: self.yaml\n")), HasSubstr("self.yaml:1:10"));
  EXPECT_THAT(error_of(write("none.yaml", "version: 1\nextends: a.yml\n")),
              HasSubstr("none.yaml:2:10: error: no such file"));
  EXPECT_THAT(error_of(write("list.yaml", "extends: [a.yaml, b.yaml]\n")),
              HasSubstr("'extends' must be the name of one file, not a list"));
  EXPECT_THAT(error_of(write("dir.yaml", "extends: sub\n")), HasSubstr("is a directory"));
  EXPECT_THAT(problems("extends: a.yaml\n" + kMinimal),
              ElementsAre("1:1 'extends' needs a file: this text has no folder"));
}

TEST_F(FileTest, SaysWhyAFileCannotBeRead) {
  write("mnist.yaml", kMinimal);
  write("configs/deep.yaml", kMinimal);
  EXPECT_THAT(error_of((folder_ / "mnsit.yaml").string()),
              HasSubstr("did you mean '" + (folder_ / "mnist.yaml").string() + "'?"));
  EXPECT_THAT(error_of((folder_ / "mnist").string()),
              HasSubstr("did you mean '" + (folder_ / "mnist.yaml").string() + "'?"));
  EXPECT_THAT(error_of((folder_ / "config/deep.yaml").string()),
              HasSubstr("did you mean '" + (folder_ / "configs/deep.yaml").string() + "'?"));
  EXPECT_THAT(error_of((folder_ / "configs").string()), HasSubstr("is a directory, not a job spec"));
  EXPECT_THAT(error_of((folder_ / "configs").string()), HasSubstr("deep.yaml"));
  EXPECT_THAT(error_of(write("big.yaml", std::string((1 << 20) + 1, '#'))), HasSubstr("over 1 MiB"));
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("over 1 MiB"));
  EXPECT_THAT(error_of("/dev/null"), HasSubstr("the job spec is empty"));
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of(pipe), HasSubstr("the job spec is empty"));  // nobody writes: no hang
}

}  // namespace
}  // namespace dtorch
