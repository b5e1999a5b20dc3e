#include "core/base/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "core/base/error.h"

namespace dtorch {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

struct Ends {
  Ends() : Ends(make_channel_pair()) {}
  explicit Ends(std::pair<Fd, Fd> pair)
      : here(std::move(pair.first)), raw(pair.second.get()), there(std::move(pair.second)) {}
  Channel here;
  int raw;
  Channel there;
};

TEST(ChannelTest, DeliversMessagesInOrder) {
  Ends ends;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ends.here.send({{"type", "n"}, {"i", i}, {"text", "a\nb \"ü\""}}));
  for (int i = 0; i < 3; ++i) {
    const auto message = ends.there.receive(Deadline::after(milliseconds(1000)));
    ASSERT_TRUE(message);
    EXPECT_EQ(*message, json({{"type", "n"}, {"i", i}, {"text", "a\nb \"ü\""}}));
  }
}

TEST(ChannelTest, ReceiveEndsAtItsDeadline) {
  Ends ends;
  const auto start = Clock::now();
  EXPECT_FALSE(ends.there.receive(Deadline::after(milliseconds(10))));
  EXPECT_GE(Clock::now() - start, milliseconds(10));
}

TEST(ChannelTest, WaitsForTheRestOfAMessage) {
  Ends ends;
  const std::string text = "{\"type\":\"x\"}\n";
  ASSERT_EQ(::write(ends.raw, text.data(), 5), 5);
  EXPECT_TRUE(ends.here.read_available().empty());
  ASSERT_EQ(::write(ends.raw, text.data() + 5, text.size() - 5), static_cast<ssize_t>(text.size() - 5));
  EXPECT_THAT(ends.here.read_available(), testing::ElementsAre(json({{"type", "x"}})));
}

TEST(ChannelTest, LastWordsAreReadBeforeTheHangUp) {
  auto [ours, theirs] = make_channel_pair();
  Channel here(std::move(ours));
  {
    Channel there(std::move(theirs));
    there.send({{"type", "failure"}});
  }
  EXPECT_EQ(here.read_available().size(), 1U);
  EXPECT_TRUE(here.closed());
  EXPECT_THROW(here.receive(Deadline::after(milliseconds(1000))), Error);
  EXPECT_FALSE(here.send({{"type", "stop"}}));
}

TEST(ChannelTest, CarriesMessagesLargerThanTheSocketsBuffer) {
  Ends ends;
  const std::string text(3'000'000, 'x');
  std::thread sender([&] { EXPECT_TRUE(ends.here.send({{"text", text}})); });
  const auto message = ends.there.receive(Deadline::after(std::chrono::seconds(20)));
  sender.join();
  ASSERT_TRUE(message);
  EXPECT_EQ((*message)["text"], text);
}

TEST(ChannelTest, WhatIsOfferedToAPeerThatDoesNotReadIsCounted) {
  Ends ends;
  const json record{{"type", "step"}, {"text", std::string(1000, 'x')}};
  int left_out = 0;
  for (int i = 0; i < 2000; ++i) left_out += ends.here.offer(record) ? 0 : 1;
  EXPECT_GT(left_out, 1000);
  std::vector<json> got = ends.there.read_available();
  ends.here.send({{"type", "result"}});
  for (auto& message : ends.there.read_available()) got.push_back(std::move(message));
  ASSERT_EQ(got.size(), 2000 - left_out + 2U);
  EXPECT_EQ(got[got.size() - 2]["text"],
            std::to_string(left_out) + " records were left out: the launcher did not read them");
  EXPECT_EQ(got.back()["type"], "result");
}

TEST(ChannelTest, WhatADeadlineCutsOffIsSentBeforeTheNextMessage) {
  Ends ends;
  const json large{{"text", std::string(1'000'000, 'x')}};
  EXPECT_TRUE(ends.here.send(large, Deadline::after(milliseconds(10))));  // it has begun
  EXPECT_FALSE(ends.here.send({{"type", "lost"}}, Deadline::after(milliseconds(10))));
  std::thread sender([&] { EXPECT_TRUE(ends.here.send({{"type", "next"}})); });
  std::vector<json> got;
  while (got.size() < 2) got.push_back(*ends.there.receive(Deadline::after(std::chrono::seconds(20))));
  sender.join();
  EXPECT_EQ(got[0], large);
  EXPECT_EQ(got[1]["type"], "next");
}

TEST(ChannelTest, RefusesMessagesOverFourMebibytes) {
  Ends ends;
  EXPECT_THROW(ends.here.send({{"text", std::string(5'000'000, 'x')}}), Error);
}

TEST(ChannelTest, NamesALineThatIsNoObject) {
  for (const std::string line : {"nonsense\n", "[1]\n", "{\"a\":}\n", "\n"}) {
    Ends ends;
    ASSERT_EQ(::write(ends.raw, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    try {
      ends.here.read_available();
      FAIL() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::lost);
      EXPECT_THAT(error.what(), testing::HasSubstr("control channel"));
    }
  }
}

TEST(ChannelTest, SendersOfSeveralThreadsDoNotMixTheirLines) {
  Ends ends;
  std::vector<std::thread> senders;
  for (int id = 0; id < 4; ++id) {
    senders.emplace_back([&ends, id] {
      for (int i = 0; i < 200; ++i) ends.here.send({{"id", id}, {"text", std::string(300, 'a')}});
    });
  }
  for (int i = 0; i < 800; ++i) ASSERT_TRUE(ends.there.receive(Deadline::after(std::chrono::seconds(20))));
  for (auto& sender : senders) sender.join();
}

}  // namespace
}  // namespace dtorch
