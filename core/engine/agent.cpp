// The launcher's helper process; its protocol is in core/launch/agent.h.
#include <fmt/format.h>
#include <poll.h>
#include <sysexits.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/bench_messages.h"
#include "core/base/channel.h"
#include "core/base/endpoint.h"
#include "core/base/log.h"
#include "core/comm/dir_store.h"
#include "core/comm/rendezvous.h"
#include "core/comm/run_folder.h"
#include "core/engine/bench.h"
#include "core/engine/failure.h"
#include "core/engine/log_forward.h"
#include "core/engine/preflight.h"
#include "core/engine/reporting.h"
#include "core/engine/run.h"
#include "core/job/load.h"
#include "core/job/places.h"

namespace dtorch::engine {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// How often keys that someone waits for are looked at.
constexpr milliseconds kGetInterval{10};
// What a task may still take once the launcher has hung up.
constexpr milliseconds kEndGrace{1000};
// How long the store outlives a launcher that was killed, so that other nodes hear of it.
constexpr milliseconds kMourning{250};
constexpr milliseconds kBeatEvery{1000};
// The launchers' share in a job's folder; the ranks have one of their own beside it.
constexpr char kNodesFolder[] = "dtorch.nodes";

json failure_message(const std::exception_ptr& exception) {
  json message = describe_failure(exception, std::nullopt);
  message["type"] = "failure";
  return message;
}

/** One launcher's agent: requests are answered one after another, except those that take long (preflight,
 * connect, get). */
class Agent {
 public:
  explicit Agent(const AgentRequest& request) : channel_(Fd(request.control_fd)), log_forward_(channel_) {}
  void run();

 private:
  struct PendingGet {
    json id;
    std::string key;
    Deadline deadline;
  };

  void wait_for_request(milliseconds at_most) const;
  void forget_finished(milliseconds wait);
  void handle(const json& request);
  json answer(const json& request);
  void background(const json& id, std::function<json()> work);
  std::optional<json> look(const PendingGet& get);
  void serve_pending_gets();
  void connect_folder(const std::string& url);
  std::int64_t first(const json& request) const;
  void show_life();
  void execute_will();
  void reply(const json& id, json message);
  StorePtr store() const;

  Channel channel_;
  LogForward log_forward_;
  std::unique_ptr<StoreServer> server_;
  mutable std::mutex mutex_;
  StorePtr client_;  // guarded by mutex_
  std::unique_ptr<RunFolder> folder_;
  std::string beat_key_;  ///< empty: none
  Clock::time_point next_beat_;
  json will_;
  std::optional<Failure> lost_;  ///< what has become of the store or the nodes in its folder
  std::list<PendingGet> gets_;
  std::list<std::future<void>> tasks_;  // destroyed first: tasks use all of the above
};

void Agent::wait_for_request(milliseconds at_most) const {
  pollfd channel{channel_.fd(), POLLIN, 0};
  ::poll(&channel, 1, static_cast<int>(at_most.count()));
}

void Agent::forget_finished(milliseconds wait) {
  tasks_.remove_if([&](const auto& task) { return task.wait_for(wait) == std::future_status::ready; });
}

void Agent::run() {
  while (!channel_.closed()) {
    wait_for_request(gets_.empty() ? kBeatEvery : kGetInterval);
    for (const auto& request : channel_.read_available()) handle(request);
    show_life();
    serve_pending_gets();
    forget_finished(milliseconds(0));
  }
  execute_will();
  folder_.reset();
  forget_finished(kEndGrace);
  // Nobody waits any more for a download or a connection under way, which cannot be interrupted.
  if (!tasks_.empty()) std::_Exit(EX_OK);
}

void Agent::reply(const json& id, json message) {
  message["id"] = id;
  channel_.send(message);
}

StorePtr Agent::store() const {
  const std::lock_guard lock(mutex_);
  if (!client_) throw Error(ErrorKind::training, "the agent has no store yet: serve or connect comes first");
  return client_;
}

void Agent::background(const json& id, std::function<json()> work) {
  tasks_.push_back(std::async(std::launch::async, [this, id, work = std::move(work)] {
    try {
      reply(id, work());
    } catch (...) {
      reply(id, failure_message(std::current_exception()));
    }
  }));
}

void Agent::handle(const json& request) {
  const auto id = request.value("id", json());
  try {
    const auto type = request.at("type").get<std::string>();
    if (type == "get") {
      const milliseconds timeout(request.at("timeout_ms").get<std::int64_t>());
      gets_.push_back({id, request.at("key").get<std::string>(), Deadline::after(timeout)});
    } else if (type == "preflight") {
      background(id, [yaml = request.at("spec").get<std::string>(), places = request.value("places", ""),
                      local_ranks = request.value("local_ranks", 1)] {
        return json{{"type", "plan"},
                    {"plan", preflight(parse_resolved(yaml, "job spec"), SpecPlaces::from_text(places),
                                       local_ranks)}};
      });
    } else if (type == "bench_preflight") {
      background(id, [text = request.at("spec").get<std::string>()] {
        return json{{"type", "plan"}, {"plan", bench_preflight(json::parse(text).get<BenchRequest>())}};
      });
    } else if (type == "connect" && !request.contains("url")) {
      const milliseconds timeout(request.at("timeout_ms").get<std::int64_t>());
      background(id, [this, host = request.at("host").get<std::string>(),
                      port = request.at("port").get<int>(), timeout] {
        auto client = connect_store(host, port, Deadline::after(timeout));
        const std::lock_guard lock(mutex_);
        client_ = std::move(client);
        return json{{"type", "connected"}};
      });
    } else {
      reply(id, answer(request));
    }
  } catch (...) {
    reply(id, failure_message(std::current_exception()));
  }
}

/** The requests that are answered at once. */
json Agent::answer(const json& request) {
  const auto type = request.at("type").get<std::string>();
  if (type == "serve") {
    server_ = serve_store(request.at("fd").get<int>());
    const std::lock_guard lock(mutex_);
    client_ = server_->store();
    return {{"type", "serving"}, {"port", server_->port()}};
  }
  if (type == "set") {
    store()->set(request.at("key").get<std::string>(), request.at("value").get<std::string>());
    return {{"type", "done"}};
  }
  if (type == "add") {
    const auto value =
        store()->add(request.at("key").get<std::string>(), request.at("amount").get<std::int64_t>());
    return {{"type", "value"}, {"value", value}};
  }
  if (type == "first") return {{"type", "value"}, {"value", first(request)}};
  if (type == "connect") {
    connect_folder(request.at("url").get<std::string>());
    return {{"type", "connected"}};
  }
  if (type == "leave") folder_.reset();
  if (type == "will") will_ = request;
  if (type == "beat") beat_key_ = request.at("key").get<std::string>();
  if (type == "leave" || type == "will" || type == "beat") return {{"type", "done"}};
  throw Error(ErrorKind::training, fmt::format("the agent does not know the request '{}'", type));
}

void Agent::connect_folder(const std::string& url) {
  folder_ = std::make_unique<RunFolder>(parse_init_url(url).path, "", kNodesFolder);
  const std::lock_guard lock(mutex_);
  client_ = c10::make_intrusive<DirStore>(folder_->path(), url);
}

/** Counts, and sets the key if nobody had counted before. */
std::int64_t Agent::first(const json& request) const {
  const auto count = store()->add(request.at("counter").get<std::string>(), 1);
  if (count == 1) store()->set(request.at("key").get<std::string>(), request.at("value").get<std::string>());
  return count;
}

/** Other nodes see that this one lives; a folder shows whether they do. */
void Agent::show_life() {
  if (lost_ || (beat_key_.empty() && !folder_) || Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + kBeatEvery;
  try {
    if (folder_) folder_->renew();
    if (!beat_key_.empty()) store()->add(beat_key_, 1);
  } catch (...) {
    lost_ = describe_failure(std::current_exception(), std::nullopt);
    lost_->kind = ErrorKind::lost;
  }
}

/** The launcher has died without a word: its last one is said in its place. */
void Agent::execute_will() {
  if (!will_.contains("key")) return;
  try {
    first(will_);
    if (server_) std::this_thread::sleep_for(kMourning);
  } catch (const std::exception& error) {
    log_debug(fmt::format("nobody to be told of the launcher's end: {}", error.what()));
  }
}

/** The answer to a "get", when there is one. Nothing: not yet. */
std::optional<json> Agent::look(const PendingGet& get) {
  try {
    if (lost_) throw Error(lost_->kind, lost_->message, lost_->help);
    if (store()->check({get.key})) return json{{"type", "value"}, {"value", store()->get_to_str(get.key)}};
  } catch (const Error& error) {  // a store that does not answer is as good as gone
    return failure_message(std::make_exception_ptr(Error(ErrorKind::lost, error.what(), error.help())));
  } catch (...) {
    return failure_message(std::current_exception());
  }
  if (!get.deadline.expired()) return std::nullopt;
  const auto late = fmt::format("the key '{}' did not appear in the store", get.key);
  return failure_message(std::make_exception_ptr(Error(ErrorKind::timeout, late)));
}

void Agent::serve_pending_gets() {
  for (auto get = gets_.begin(); get != gets_.end();) {
    auto found = look(*get);
    if (found) reply(get->id, std::move(*found));
    get = found ? gets_.erase(get) : std::next(get);
  }
}

}  // namespace

int run_agent(const AgentRequest& request) {
  quiet_libtorch();  // the store complains, with stacks, of strangers that send it nonsense
  try {
    Agent(request).run();
    return 0;
  } catch (...) {
    // Without its channel the agent has nobody to tell but stderr.
    const auto failure = describe_failure(std::current_exception(), std::nullopt);
    print_failure(failure);
    return static_cast<int>(failure.kind) + 1;
  }
}

}  // namespace dtorch::engine
