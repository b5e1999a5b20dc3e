// A stand-in for libdtorch.so: ranks that do what FAKE_<rank> (or FAKE_RANK) says, an agent with a store of its own, and no
// libtorch. It lets tests of the launcher bring about in milliseconds what real training does once in a blue moon.
//   FAKE_1="steps:3,print:hello,sleep:0.2,raise:9"   actions in order; the rank ends well after the last one
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/base/channel.h"
#include "core/base/messages.h"
#include "core/engine/engine.h"

namespace {

using nlohmann::json;
using namespace dtorch;

void pause_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

int fail(Channel& channel, Failure failure) {
  json message = failure;
  message["type"] = "failure";
  channel.send(message);
  return static_cast<int>(failure.kind) + 1;
}

Failure failure_with(ErrorKind kind, const std::string& message) {
  Failure failure;
  failure.kind = kind;
  failure.message = message;
  return failure;
}

/** Trains for ever, as a rank that listens to its launcher does. */
int train(Channel& channel) {
  while (true) {
    const auto message = channel.receive(Deadline::after(std::chrono::hours(1)));
    const std::string type = message ? message->value("type", "") : "";
    if (type == "stop") return fail(channel, failure_with(ErrorKind::interrupted, "stopped on request"));
    if (type == "dump")
      channel.send({{"type", "ring"}, {"ring", {"all_reduce #7 waiting"}}, {"stack", {"main"}}});
    if (type == "abort") {
      Failure failure = failure_with(ErrorKind::lost, "aborted: " + message->value("reason", ""));
      failure.consequence = true;
      failure.collective = "all_reduce #7";
      return fail(channel, failure);
    }
  }
}

int act(Channel& channel, const std::string& action, const std::string& value) {
  if (action == "sleep") pause_for(std::stod(value));
  if (action == "print") std::printf("%s\n", value.c_str()), std::fflush(stdout);
  if (action == "touch") ::close(::open(value.c_str(), O_WRONLY | O_CREAT, 0644));
  while (action == "await" && ::access(value.c_str(), F_OK) != 0) pause_for(0.001);
  if (action == "raise") std::raise(std::stoi(value));
  if (action == "exit") ::_exit(std::stoi(value));
  if (action == "fail") return fail(channel, failure_with(*error_kind_from(value), "failed as told"));
  if (action == "consequence") {
    Failure failure = failure_with(ErrorKind::lost, "connection closed by peer");
    failure.consequence = true;
    failure.collective = "all_reduce #7";
    return fail(channel, failure);
  }
  if (action == "grandchild" &&
      std::system("setsid sleep 1000 >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1 &") != 0)
    return 1;
  if (action == "train") return train(channel);
  if (action == "deaf") {
    for (const int number : {SIGTERM, SIGINT}) ::signal(number, SIG_IGN);
    pause_for(1000);
  }
  if (action == "steps") {
    for (int step = 1; step <= std::stoi(value); ++step) {
      StepRecord record;
      record.rank = std::atoi(std::getenv("RANK"));
      record.step = step;
      json message = record;
      message["type"] = "step";
      channel.offer(message);
    }
  }
  return 0;
}

int run_rank(const engine::RankRequest& request) {
  Channel channel{Fd(request.control_fd)};
  const std::string own = std::string("FAKE_") + std::getenv("RANK");
  const char* script = std::getenv(own.c_str());
  if (script == nullptr) script = std::getenv("FAKE_RANK");
  std::istringstream actions(script != nullptr ? script : "");
  for (std::string action; std::getline(actions, action, ',');) {
    const std::size_t colon = std::min(action.find(':'), action.size());
    const int status =
        act(channel, action.substr(0, colon), action.substr(std::min(colon + 1, action.size())));
    if (status != 0) return status;
  }
  channel.send({{"type", "phase"}, {"phase", "done"}});
  if (std::string(std::getenv("RANK")) == "0" && std::getenv("FAKE_NO_RESULT") == nullptr) {
    json message = ResultRecord{};
    message["type"] = "result";
    channel.send(message);
  }
  return 0;
}

/** A key-value store: in this process on node 0, asked over TCP by the others. */
class Store {
 public:
  json answer(const json& request) {
    const std::string type = request.at("type");
    if (type == "beat") return {{"type", "done"}};
    const std::string key = request.at("key");
    if (type == "first") {
      const json counted = answer({{"type", "add"}, {"key", request.at("counter")}, {"amount", 1}});
      if (counted.at("value") == 1) answer({{"type", "set"}, {"key", key}, {"value", request.at("value")}});
      return counted;
    }
    const std::lock_guard lock(mutex_);
    if (type == "set") {
      values_[key] = request.at("value").get<std::string>();
      return {{"type", "done"}};
    }
    if (type == "add") {
      const std::int64_t value =
          (values_.count(key) ? std::stoll(values_[key]) : 0) + request.at("amount").get<std::int64_t>();
      values_[key] = std::to_string(value);
      return {{"type", "value"}, {"value", value}};
    }
    if (values_.count(key)) return {{"type", "value"}, {"value", values_[key]}};
    return {{"type", "failure"}, {"kind", "timeout"}, {"message", "no such key"}};
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

void serve(Store& store, int listener) {
  std::thread([&store, listener] {
    while (true) {
      const int client = ::accept(listener, nullptr, nullptr);
      if (client < 0) return;
      std::thread([&store, client] {
        Channel channel{Fd(client)};
        try {
          while (auto request = channel.receive(Deadline::after(std::chrono::hours(1))))
            channel.send(store.answer(*request));
        } catch (const Error&) {
        }
      }).detach();
    }
  }).detach();
}

std::unique_ptr<Channel> connect_to(const json& request) {
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(request.at("timeout_ms").get<int>()));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(request.at("port").get<std::uint16_t>());
  ::inet_pton(AF_INET, request.at("host").get<std::string>().c_str(), &address.sin_addr);
  while (!deadline.expired()) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      return std::make_unique<Channel>(std::move(socket));
    }
    pause_for(0.02);
  }
  return nullptr;
}

json ask_elsewhere(Channel& remote, const json& request) {
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(request.value("timeout_ms", 0)));
  while (true) {
    remote.send(request);
    json answer = *remote.receive(Deadline::after(std::chrono::seconds(5)));
    if (answer.value("type", "") != "failure" || deadline.expired()) return answer;
    pause_for(0.01);
  }
}

json answer(const json& request, Store& store, std::unique_ptr<Channel>& remote) {
  const std::string type = request.at("type");
  const char* mode = std::getenv("FAKE_AGENT");
  if (type == "preflight" && mode != nullptr && std::string(mode) == "refuse") {
    json message = failure_with(ErrorKind::spec, "the plan does not work");
    message["type"] = "failure";
    return message;
  }
  if (type == "preflight" && mode != nullptr && std::string(mode) == "die") std::raise(SIGSEGV);
  if (type == "preflight" && mode != nullptr && std::string(mode) == "slow") pause_for(1000);
  if (type == "preflight") return {{"type", "plan"}, {"plan", {{"fake", true}}}};
  if (type == "serve") {
    serve(store, request.at("fd").get<int>());
    return {{"type", "serving"}};
  }
  if (type == "connect") {
    remote = connect_to(request);
    if (remote) return {{"type", "connected"}};
    json message = failure_with(ErrorKind::timeout, "nobody answers");
    message["type"] = "failure";
    return message;
  }
  if (remote) return ask_elsewhere(*remote, request);
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(request.value("timeout_ms", 0)));
  while (true) {
    json result = store.answer(request);
    if (result.value("type", "") != "failure" || deadline.expired()) return result;
    pause_for(0.01);
  }
}

int run_agent(const engine::AgentRequest& request) {
  Channel channel{Fd(request.control_fd)};
  static Store store;
  std::unique_ptr<Channel> remote;
  json will;
  try {
    while (auto message = channel.receive(Deadline::after(std::chrono::hours(1)))) {
      json reply;
      try {
        if (message->value("type", "") == "will") {
          will = *message;
          reply = {{"type", "done"}};
        } else {
          reply = answer(*message, store, remote);
        }
      } catch (const Error& error) {
        reply = failure_with(error.kind(), error.what());
        reply["type"] = "failure";
      }
      reply["id"] = (*message)["id"];
      channel.send(reply);
    }
  } catch (const Error&) {  // the launcher has died
    if (!will.contains("key")) return 0;
    will["type"] = "first";
    try {
      answer(will, store, remote);
      if (!remote) pause_for(0.25);
    } catch (const Error&) {
      return 0;
    }
  }
  return 0;
}

int run_bench_rank(const engine::BenchRankRequest&) { return 1; }  // no test times the stand-in

std::vector<std::string> versions() { return {"fake 1"}; }

}  // namespace

extern "C" const engine::Engine* dtorch_engine() {
  static const engine::Engine engine{engine::kAbi, run_rank, run_bench_rank, run_agent, versions};
  return &engine;
}
