// The engine's door as the launcher sees it: the agent and a rank's control channel, over real sockets.
#include "core/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "backends/registry/registry.h"
#include "core/base/channel.h"
#include "core/base/log.h"
#include "core/comm/rendezvous.h"
#include "core/engine/digest.h"
#include "core/engine/preflight.h"
#include "core/engine/rank_control.h"
#include "core/job/load.h"

extern "C" const dtorch::engine::Engine* dtorch_engine();

namespace dtorch::engine {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

const char* const kSpec =
    "version: 1\nname: digits\nbackend: gloo\nworld_size: 2\n"
    "model: {type: mlp, layers: [784, 16, 10]}\n"
    "dataset: {type: fashion_mnist, root: /usr/share/datasets/fashion-mnist}\n"
    "loader: {batch_size: 100}\noptimizer: {type: sgd, lr: 0.01}\nepochs: 3\n";

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

Fd listening_socket() {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(socket.get(), 16), 0);
  return socket;
}

/** An agent on a thread of this process, and the launcher's end of its channel. */
class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    auto [ours, theirs] = make_channel_pair();
    channel_ = std::make_unique<Channel>(std::move(ours));
    agent_ = std::thread([fd = theirs.release(), this] { code_ = dtorch_engine()->run_agent({fd}); });
  }
  ~AgentTest() override { end(); }

  void end() {
    channel_.reset();
    if (agent_.joinable()) agent_.join();
  }

  /** The answer with the request's id; log lines are kept. */
  json ask(json request) {
    request["id"] = ++id_;
    channel_->send(request);
    while (auto message = channel_->receive(soon())) {
      if (message->value("id", 0) == id_) return *message;
      if (message->value("type", "") == "log") logs_.push_back(message->at("text"));
    }
    ADD_FAILURE() << "no answer to " << request;
    return {};
  }

  std::unique_ptr<Channel> channel_;
  std::thread agent_;
  std::atomic<int> code_{-1};
  int id_ = 0;
  std::vector<std::string> logs_;
};

TEST_F(AgentTest, PreflightGivesThePlan) {
  const auto answer = ask({{"type", "preflight"}, {"spec", kSpec}});
  ASSERT_EQ(answer.at("type"), "plan") << answer;
  const auto& plan = answer.at("plan");
  EXPECT_EQ(plan.at("job"), "digits");
  EXPECT_EQ(plan.at("backend"), "gloo");
  EXPECT_EQ(plan.at("device"), "cpu");
  EXPECT_EQ(plan.at("steps_per_epoch"), 300);
  EXPECT_EQ(plan.at("steps"), 900);
  EXPECT_EQ(plan.at("batch"), (json{{"per_rank", 100}, {"global", 200}}));
  EXPECT_EQ(plan.at("dataset").at("train"), 60000);
  EXPECT_EQ(plan.at("model").at("layers").at(1),
            (json{{"name", "fc2"}, {"description", "Linear(16, 10)"}, {"parameters", 170}}));
  EXPECT_EQ(plan.at("model").at("parameters"), 784 * 16 + 16 + 170);
}

TEST_F(AgentTest, PreflightFailureTellsKindAndRemedy) {
  // What the spec alone cannot tell: the size of images in files of one's own.
  const std::string spec =
      "version: 1\nname: own\nworld_size: 2\nmodel: {type: mlp, layers: [10, 10]}\n"
      "dataset: {type: idx, root: /usr/share/datasets/fashion-mnist, train_images: "
      "train-images-idx3-ubyte.gz, "
      "train_labels: train-labels-idx1-ubyte.gz, test_images: t10k-images-idx3-ubyte.gz, "
      "test_labels: t10k-labels-idx1-ubyte.gz}\noptimizer: {type: sgd, lr: 0.01}\n";
  const auto answer = ask({{"type", "preflight"}, {"spec", spec}});
  EXPECT_EQ(answer.at("type"), "failure");
  EXPECT_EQ(answer.at("kind"), "spec");
  EXPECT_THAT(answer.at("message").get<std::string>(),
              HasSubstr("job spec: error: model.layers.0: the model takes 10 inputs"));
  EXPECT_THAT(answer.at("message").get<std::string>(), HasSubstr("help: make the first width 784"));
}

TEST_F(AgentTest, ServesAStoreOnTheInheritedSocket) {
  const auto answer = ask({{"type", "serve"}, {"fd", listening_socket().release()}});
  ASSERT_EQ(answer.at("type"), "serving") << answer;
  const auto client = connect_store("127.0.0.1", answer.at("port"), soon());
  EXPECT_EQ(ask({{"type", "set"}, {"key", "k"}, {"value", "v"}}).at("type"), "done");
  EXPECT_EQ(client->get_to_str("k"), "v");
  EXPECT_EQ(ask({{"type", "add"}, {"key", "n"}, {"amount", 2}}).at("value"), 2);
  EXPECT_EQ(ask({{"type", "add"}, {"key", "n"}, {"amount", 3}}).at("value"), 5);
  EXPECT_EQ(ask({{"type", "get"}, {"key", "k"}, {"timeout_ms", 1000}}).at("value"), "v");
}

TEST_F(AgentTest, AnotherNodesAgentConnects) {
  const auto served = serve_store(listening_socket().release());
  served->store()->set("from", "node 0");
  EXPECT_EQ(ask({{"type", "connect"}, {"host", "127.0.0.1"}, {"port", served->port()}, {"timeout_ms", 10000}})
                .at("type"),
            "connected");
  EXPECT_EQ(ask({{"type", "get"}, {"key", "from"}, {"timeout_ms", 1000}}).at("value"), "node 0");
}

TEST_F(AgentTest, WaitingForAKeyHoldsUpNothingElse) {
  ask({{"type", "serve"}, {"fd", listening_socket().release()}});
  channel_->send({{"type", "get"}, {"id", 1000}, {"key", "late"}, {"timeout_ms", 20000}});
  EXPECT_EQ(ask({{"type", "set"}, {"key", "late"}, {"value", "come"}}).at("type"), "done");
  const auto answer = channel_->receive(soon());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->at("id"), 1000);
  EXPECT_EQ(answer->at("value"), "come");
}

TEST_F(AgentTest, KeyThatDoesNotComeIsATimeoutNamingIt) {
  ask({{"type", "serve"}, {"fd", listening_socket().release()}});
  const auto answer = ask({{"type", "get"}, {"key", "never"}, {"timeout_ms", 50}});
  EXPECT_EQ(answer.at("kind"), "timeout");
  EXPECT_THAT(answer.at("message").get<std::string>(), HasSubstr("never"));
}

TEST_F(AgentTest, NonsenseIsAnsweredAndSurvived) {
  EXPECT_EQ(ask({{"type", "sing"}}).at("type"), "failure");
  EXPECT_EQ(ask({{"type", "get"}}).at("type"), "failure");
  EXPECT_EQ(ask({{"type", "set"}, {"key", "k"}, {"value", "no store yet"}}).at("type"), "failure");
  EXPECT_EQ(ask({{"type", "preflight"}, {"spec", "world_size: [}"}}).at("kind"), "spec");
}

TEST_F(AgentTest, EndsWhenTheLauncherHangsUp) {
  end();
  EXPECT_EQ(code_.load(), 0);
}

/** A rank's control on this thread, and the launcher's end of its channel. */
class RankControlTest : public ::testing::Test {
 protected:
  RankControlTest() {
    auto [ours, theirs] = make_channel_pair();
    launcher_ = std::make_unique<Channel>(std::move(ours));
    control_ = std::make_unique<RankControl>(theirs.release());
  }

  static bool eventually(const std::function<bool()>& condition) {
    for (const auto deadline = soon(); !deadline.expired();
         std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      if (condition()) return true;
    }
    return false;
  }

  std::unique_ptr<Channel> launcher_;
  std::unique_ptr<RankControl> control_;
};

TEST_F(RankControlTest, StopIsARequest) {
  EXPECT_FALSE(control_->stop_requested().load());
  launcher_->send({{"type", "stop"}});
  EXPECT_TRUE(eventually([this] { return control_->stop_requested().load(); }));
}

TEST_F(RankControlTest, LogLinesGoToTheLauncher) {
  log_warning("beware");
  const auto message = launcher_->receive(soon());
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(*message, (json{{"type", "log"}, {"level", "warning"}, {"text", "beware"}}));
}

TEST_F(RankControlTest, DumpTellsTheRingAndTheMainThreadsStack) {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  const auto group = std::make_shared<ProcessGroup>(find_backend("gloo"), store, 0, 1, ProcessGroupOptions{});
  auto tensor = torch::ones({7});
  group->all_reduce(tensor)->wait(soon());
  control_->watch(group);
  launcher_->send({{"type", "dump"}});
  const auto message = launcher_->receive(soon());
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->at("type"), "ring");
  EXPECT_EQ(message->at("rank"), 0);
  EXPECT_THAT(message->at("ring").back().at("operation").get<std::string>(), HasSubstr("all_reduce"));
  EXPECT_TRUE(message->at("ring").back().at("took_ms").is_number());
  // This thread is the main one; it is sending still, or waits for the answer.
  EXPECT_THAT(message->at("stack").get<std::vector<std::string>>(), Contains(HasSubstr("dtorch::Channel::")));
}

TEST_F(RankControlTest, AbortReachesTheGroup) {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  const auto group = std::make_shared<ProcessGroup>(find_backend("gloo"), store, 0, 1, ProcessGroupOptions{});
  control_->watch(group);
  launcher_->send({{"type", "abort"}, {"reason", "rank 1 was killed"}});
  ASSERT_TRUE(eventually([this] { return control_->abort_reason().has_value(); }));
  auto tensor = torch::ones({7});
  try {
    while (true) group->all_reduce(tensor)->wait(soon());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::lost);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 was killed"));
  }
  control_.reset();  // ends in time: the process is not taken down
}

TEST(DigestTest, DiffersWithWhatMattersOnly) {
  const auto spec = parse_job(kSpec, "test");
  const auto digest = job_digest(spec);
  EXPECT_EQ(digest.value.size(), 64U);
  auto elsewhere = spec;
  elsewhere.dataset.root = "/other/folder";
  elsewhere.nodes.interface = "eth0";
  EXPECT_EQ(job_digest(elsewhere).value, digest.value);
  auto other = spec;
  other.optimizer.lr = 0.02;
  EXPECT_NE(job_digest(other).value, digest.value);
  EXPECT_THAT(digest.text, HasSubstr("libtorch: 2."));
}

TEST(EngineTest, TellsItsVersions) {
  ASSERT_EQ(dtorch_engine()->abi, kAbi);
  const auto lines = dtorch_engine()->versions();
  EXPECT_THAT(lines, Contains(HasSubstr("libtorch 2.")));
  EXPECT_THAT(lines, Contains("backend gloo: available"));
}

TEST(EngineTest, DevicesThatThisBuildLacksAreRefused) {
  EXPECT_EQ(resolve_device("auto"), "cpu");
  EXPECT_THROW(resolve_device("cuda"), Error);
}

}  // namespace
}  // namespace dtorch::engine
