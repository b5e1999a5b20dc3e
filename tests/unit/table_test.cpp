#include "core/job/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "core/job/fields.h"
#include "core/job/load.h"

namespace dtorch {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(TableTest, KeysAreUniqueAndSectionsComeBeforeTheirKeys) {
  std::set<std::string_view> seen;
  for (const KeyInfo& key : job_keys()) {
    EXPECT_TRUE(seen.insert(key.path).second) << key.path;
    EXPECT_FALSE(key.doc.empty()) << key.path;
    const std::size_t dot = key.path.find('.');
    if (dot != std::string_view::npos) {
      EXPECT_TRUE(seen.count(key.path.substr(0, dot))) << key.path;
    }
  }
}

TEST(TableTest, DefaultsAreThoseOfTheStruct) {
  // Every default of the table, written out as a spec, is what a spec that says nothing gets.
  std::string written = "version: 1\nmodel: mlp\ndataset: mnist\n";
  std::vector<std::string> overrides;
  for (const KeyInfo& key : job_keys()) {
    if (!key.fallback.empty()) overrides.push_back(std::string(key.path) + "=" + std::string(key.fallback));
  }
  JobSpec expected;
  expected.model.type = "mlp";
  expected.dataset.type = "mnist";
  EXPECT_EQ(parse_job(written, "defaults"), expected);
  EXPECT_EQ(parse_job(written, "defaults", overrides), expected);
}

TEST(TableTest, CanonicalTextHasEveryKeyInOrder) {
  JobSpec spec;
  spec.dataset.type = "mnist";
  std::istringstream lines(to_yaml(spec));
  std::string section;
  std::vector<std::string> paths;
  for (std::string line; std::getline(lines, line);) {
    const std::string name =
        line.substr(line.find_first_not_of(' '), line.find(':') - line.find_first_not_of(' '));
    if (line[0] != ' ') section = name;
    paths.push_back(line[0] == ' ' ? section + "." + name : name);
  }
  std::vector<std::string> expected;
  for (const KeyInfo& key : job_keys()) expected.emplace_back(key.path);
  EXPECT_EQ(paths, expected);
}

TEST(TableTest, EveryRangeIsEnforced) {
  // Each bound in the table, overstepped, is refused: a range that nobody reads would be a lie in the
  // documentation.
  for (const KeyInfo& key : job_keys()) {
    if (key.type != KeyType::integer && key.type != KeyType::number) continue;
    for (const char* value : {"-1", "1e30"}) {
      if (key.type == KeyType::integer && std::string_view(value) == "1e30") value = "99999999999";
      if (key.path == "seed" && std::string_view(value) != "-1") continue;
      const std::string flag = std::string(key.path) + "=" + value;
      EXPECT_THROW(parse_job("version: 1\nmodel: mlp\ndataset: mnist\n", "spec", {flag}), SpecError) << flag;
    }
  }
}

TEST(TableTest, ReferenceHoldsTheTable) {
  const std::string page = read(DTORCH_SOURCE "/docs/job-spec.md");
  EXPECT_THAT(page, ::testing::HasSubstr("<!-- begin: job_keys -->\n" + job_keys_markdown() +
                                         "<!-- end: job_keys -->"))
      << "docs/job-spec.md is behind the table: put in the output of build/job_keys";
}

}  // namespace
}  // namespace dtorch
