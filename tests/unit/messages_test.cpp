#include "core/base/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace dtorch {
namespace {

using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/** Over the wire and back: through text, as on a control channel. */
template <typename Record>
Record travelled(const Record& record) {
  return json::parse(json(record).dump()).get<Record>();
}

TEST(MessagesTest, StepRecordSurvives) {
  StepRecord record;
  record.rank = 3;
  record.host = "node-ä";
  record.device = "cpu";
  record.epoch = 4;
  record.epochs = 5;
  record.step = (1LL << 53) + 1;
  record.epoch_step = 17;
  record.steps_per_epoch = 469;
  record.loss = 0.1 + 0.2;
  record.samples_per_s = 46'123.5;
  record.step_ms = 1.39;
  record.compute_ms = 1.1;
  record.comm_share = 0.25;
  record.data_share = 0.01;
  record.memory_bytes = std::numeric_limits<std::uint64_t>::max();
  const json before = record;
  EXPECT_EQ(before.at("type"), "step");
  EXPECT_EQ(json(travelled(record)), before);
  EXPECT_EQ(travelled(record).loss, 0.1 + 0.2);  // to the last bit
  EXPECT_EQ(travelled(record).step, (1LL << 53) + 1);
  EXPECT_EQ(travelled(record).memory_bytes, std::numeric_limits<std::uint64_t>::max());
}

TEST(MessagesTest, OtherRecordsSurvive) {
  const json epoch = EpochRecord{2, 0.5, 1000, 3};
  EXPECT_EQ(json(travelled(EpochRecord{2, 0.5, 1000, 3})), epoch);
  const json eval = EvalRecord{2, 0.25, 0.975, 10'000, 0.3};
  EXPECT_EQ(json(travelled(EvalRecord{2, 0.25, 0.975, 10'000, 0.3})), eval);
  const ResultRecord result{0.98, 0.05, 90'000, 4.5, 2, "gloo", "mnist", 2345, 5};
  EXPECT_EQ(json(travelled(result)), json(result));
  EXPECT_EQ(epoch.at("type"), "epoch");
  EXPECT_EQ(eval.at("type"), "eval");
  EXPECT_EQ(json(result).at("type"), "result");
}

TEST(MessagesTest, FailureSurvives) {
  Failure failure;
  failure.kind = ErrorKind::timeout;
  failure.message = "all_reduce #42 timed out";
  failure.help = "look at rank 1";
  failure.rank = 0;
  failure.host = "a";
  failure.step = 17;
  failure.collective = "all_reduce #42 float32[407050]";
  failure.signal = 9;
  failure.exit_code = 255;
  failure.missing_ranks = {1, 3};
  failure.consequence = true;
  const Failure back = travelled(failure);
  EXPECT_EQ(json(back), json(failure));
  EXPECT_EQ(back.kind, ErrorKind::timeout);
  EXPECT_EQ(back.missing_ranks, (std::vector<int>{1, 3}));
}

TEST(MessagesTest, NanAndInfinitySurvive) {
  StepRecord record;
  record.loss = kNan;
  record.samples_per_s = kInf;
  record.step_ms = -kInf;
  const StepRecord back = travelled(record);
  EXPECT_TRUE(std::isnan(back.loss));
  EXPECT_EQ(back.samples_per_s, kInf);
  EXPECT_EQ(back.step_ms, -kInf);
  EXPECT_TRUE(json(record).at("loss").is_null());
}

TEST(MessagesTest, MissingMembersKeepDefaultsAndUnknownOnesAreLeftAlone) {
  const Failure failure = json::parse(R"({"message":"m","color":"red","nested":{"a":[1]}})").get<Failure>();
  EXPECT_EQ(failure.message, "m");
  EXPECT_EQ(failure.rank, -1);
  EXPECT_EQ(failure.kind, ErrorKind::training);
}

TEST(MessagesTest, AnUnknownKindIsStillAFailure) {
  EXPECT_EQ(json::parse(R"({"kind":"meteor"})").get<Failure>().kind, ErrorKind::training);
}

TEST(MessagesTest, RefusesWrongTypesAndBounds) {
  for (const char* text : {R"([])", R"("step")", R"({"rank":"0"})", R"({"rank":1.5})", R"({"rank":-1})",
                           R"({"rank":9999999999999999999})", R"({"rank":99999999999})", R"({"loss":"nan"})",
                           R"({"loss":true})", R"({"loss":[1]})", R"({"host":7})", R"({"host":null})",
                           R"({"step":-1})", R"({"step":1e3})", R"({"step":18446744073709551615})",
                           R"({"memory_bytes":-1})", R"({"memory_bytes":1.0})", R"({"epochs":2147483648})"}) {
    try {
      (void)json::parse(text).get<StepRecord>();
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::lost) << text;
    }
  }
  for (const char* text :
       {R"({"missing_ranks":1})", R"({"missing_ranks":[-1]})", R"({"missing_ranks":["a"]})",
        R"({"missing_ranks":[1e99]})", R"({"consequence":1})", R"({"signal":-9})", R"({"signal":128})",
        R"({"exit_code":256})", R"({"rank":-2})", R"({"kind":3})"}) {
    EXPECT_THROW((void)json::parse(text).get<Failure>(), Error) << text;
  }
}

}  // namespace
}  // namespace dtorch
