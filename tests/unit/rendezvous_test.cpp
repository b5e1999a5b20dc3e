#include "core/comm/rendezvous.h"

#include <c10/util/Logging.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/listen.h"
#include "core/base/port_owner.h"
#include "core/comm/member.h"
#include "core/comm/named_store.h"
#include "core/comm/reach.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;

RendezvousRequest request(const std::string& init, std::optional<int> rank, std::optional<int> world,
                          std::chrono::milliseconds wait = 60s) {
  return {.init_method = init,
          .rank = rank,
          .world_size = world,
          .run_id = {},
          .attempt = 0,
          .digest = {},
          .digest_text = {},
          .serve = true,
          .deadline = Deadline::after(wait)};
}

template <typename Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorKind::training, ""};
}

TEST(RendezvousTest, ContradictionsAreSaid) {
  const auto two_ranks = error_of([] { rendezvous(request("tcp://127.0.0.1:5?rank=1", 0, 2)); });
  EXPECT_EQ(two_ranks.kind(), ErrorKind::spec);
  EXPECT_NE(std::string(two_ranks.what()).find("the rank is 0"), std::string::npos) << two_ranks.what();
  EXPECT_EQ(error_of([] { rendezvous(request("tcp://127.0.0.1:5", 2, 2)); }).kind(), ErrorKind::spec);
  EXPECT_EQ(error_of([] { rendezvous(request("tcp://127.0.0.1:5", 0, {})); }).kind(), ErrorKind::spec);
  EXPECT_EQ(error_of([] { rendezvous(request("tcp://127.0.0.1:0", 0, 2)); }).kind(), ErrorKind::spec);
}

TEST(RendezvousTest, OneRankNeedsNoPort) {
  const auto alone = rendezvous(request("tcp://127.0.0.1:0", 0, 1));
  EXPECT_EQ(alone->rank(), 0);
  EXPECT_EQ(alone->world_size(), 1);
  alone->store()->set("k", std::string("v"));
  EXPECT_EQ(alone->store()->get_to_str("k"), "v");
}

TEST(RendezvousTest, RanksJoinAServedStoreAsClients) {
  const auto server = serve_store(listen_on({"127.0.0.1", 0}, Foreign::refuse).socket.release());
  const auto init = "tcp://127.0.0.1:" + std::to_string(server->port());
  const auto join = [&](int rank) {
    auto mine = request(init, rank, 2);
    mine.serve = false;
    return rendezvous(mine);
  };
  for (int run = 0; run < 2; ++run) {
    auto other = std::async(std::launch::async, join, 1);
    if (run == 0) {
      const auto zero = join(0);
      EXPECT_EQ(other.get()->rank(), 1);
    } else {
      // The same keys once more, without a new attempt: both are one too many.
      EXPECT_EQ(error_of([&] { join(0); }).kind(), ErrorKind::disagree);
      EXPECT_THROW(other.get(), Error);
    }
  }
}

TEST(RendezvousTest, ErrorsOfAStoreHaveNoStackTrace) {
  auto server = serve_store(listen_on({"127.0.0.1", 0}, Foreign::refuse).socket.release());
  const auto client = connect_store("127.0.0.1", server->port(), Deadline::after(60s));
  const auto waited = error_of([&] { client->wait({"never"}, 20ms); });
  EXPECT_EQ(waited.kind(), ErrorKind::timeout);
  EXPECT_EQ(std::string(waited.what()).find("frame #"), std::string::npos) << waited.what();
  server.reset();
  testing::internal::CaptureStderr();
  const auto lost = error_of([&] { client->get("k"); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(lost.kind(), ErrorKind::lost);
  EXPECT_EQ(std::string(lost.what()).find("frame #"), std::string::npos) << lost.what();
}

TEST(RendezvousTest, BusyPortNamesThisProcess) {
  const auto held = listen_on({"127.0.0.1", 0}, Foreign::refuse);
  const auto port = held.port;
  EXPECT_NE(port_owner(port).find("pid " + std::to_string(::getpid())), std::string::npos)
      << port_owner(port);
  const auto error = error_of([&] { listen_on({"127.0.0.1", port}, Foreign::refuse); });
  EXPECT_EQ(error.kind(), ErrorKind::os_resource);
  EXPECT_NE(std::string(error.what()).find(std::to_string(::getpid())), std::string::npos) << error.what();
}

TEST(RendezvousTest, ReachHoldsItsDeadline) {
  const auto start = Clock::now();
  const auto closed = listen_on({"127.0.0.1", 0}, Foreign::refuse).port;
  const auto error = error_of([&] { reach({"127.0.0.1", closed}, Deadline::after(50ms)); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_NE(std::string(error.what()).find("refused"), std::string::npos) << error.what();
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST(RendezvousTest, WhoeverWaitsForEverMayJoin) {
  EXPECT_GT(Deadline::after(std::chrono::milliseconds::max()).remaining(), 1h);
  EXPECT_GT(Deadline::after(std::chrono::hours::max()).remaining(), 1h);
  EXPECT_TRUE(Deadline::after(std::chrono::milliseconds::min()).expired());
  const auto alone = rendezvous(request("tcp://127.0.0.1:0", 0, 1, std::chrono::milliseconds::max()));
  EXPECT_EQ(alone->rank(), 0);
  const auto server = serve_store(listen_on({"127.0.0.1", 0}, Foreign::refuse).socket.release());
  const auto client = connect_store("127.0.0.1", server->port(), Deadline(Clock::time_point::max()));
  client->set("k", std::string("v"));
  EXPECT_EQ(server->store()->get_to_str("k"), "v");
}

TEST(RendezvousTest, ALateRankHearsOfTheJobsOwnSize) {
  const auto server = serve_store(listen_on({"127.0.0.1", 0}, Foreign::refuse).socket.release());
  const auto join = [&](int rank, int world) {
    auto mine = request("tcp://127.0.0.1:" + std::to_string(server->port()), rank, world);
    mine.serve = false;
    return rendezvous(mine);
  };
  auto other = std::async(std::launch::async, [&] { return join(1, 2); });
  const auto first = join(0, 2);
  const auto second = other.get();
  const auto late = error_of([&] { join(2, 3); });
  EXPECT_EQ(late.kind(), ErrorKind::disagree);
  const std::string text = late.what();
  EXPECT_NE(text.find("all 2 ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 2 of 3"), std::string::npos) << text;
}

TEST(NamedStoreTest, ALogLevelThatTheUserSetStays) {
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 1);
  FLAGS_caffe2_log_level = 3;
  { const QuietLibtorch quiet; }
  EXPECT_EQ(FLAGS_caffe2_log_level, 3);
}

TEST(MemberTest, TextsOfOthersAreChecked) {
  const auto self = describe_self(1, 2, "d");
  const auto read = member_from(to_text(self), 7);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 1);
  EXPECT_EQ(read->sequence, 7);
  for (const char* text : {"", "[]", "{}", "{\"rank\":", "null", "{\"rank\":\"x\"}"})
    EXPECT_FALSE(member_from(text, 1)) << text;
  auto liar = self;
  liar.rank = 2;
  EXPECT_FALSE(member_from(to_text(liar), 1));
}

TEST(MemberTest, RanksAreWrittenAsRanges) {
  EXPECT_EQ(ranks_text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(ranks_text({3}), "3");
}

}  // namespace
}  // namespace dtorch
