#include "core/launch/node_link.h"

#include <fmt/format.h>

#include "core/base/address.h"
#include "core/base/host.h"

namespace dtorch {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr char kPrefix[] = "dtorch/launch/";
/** One "get" waits so long, then it is asked again: what is shared waits no longer behind it than FirstCause's patience. */
constexpr milliseconds kGetTime(40);
constexpr milliseconds kAnswerTime(10'000);
/** How much later than node 0's the ranks of other nodes may end. */
constexpr milliseconds kLastRanks(60'000);
constexpr milliseconds kFailureSpread(1'000);
constexpr milliseconds kPollPause(20);

std::string key(const std::string& name) { return kPrefix + name; }
std::string attempt_key(int attempt, const char* name) {
  return fmt::format("{}{}/{}", kPrefix, attempt, name);
}

/** The node whose failure an answer tells, and the failure. */
std::pair<int, Failure> read_shared(const json& answer) {
  try {
    const json shared = json::parse(answer.at("value").get<std::string>());
    return {shared.at("node").get<int>(), shared.at("failure").get<Failure>()};
  } catch (const json::exception& error) {
    Failure failure;
    failure.kind = ErrorKind::disagree;
    failure.host = host_name();
    failure.message = fmt::format("another node failed, and what it says cannot be read: {}", error.what());
    return {-1, failure};
  }
}

}  // namespace

void NodeLink::offer(const Offer& job) {
  session_.call({{"type", "set"}, {"key", key("job")}, {"value", to_text(job)}}, kAnswerTime,
                "the job's store");
}

void NodeLink::connect(const Endpoint& endpoint) {
  host_ = to_string(endpoint);
  try {
    session_.call({{"type", "connect"},
                   {"host", endpoint.host},
                   {"port", endpoint.port},
                   {"timeout_ms", limit_.count()}},
                  limit_ + kAnswerTime, "the connection to node 0 at " + host_);
  } catch (const Error& error) {
    const std::string help =
        is_loopback(endpoint.host)
            ? endpoint.host + " is this machine itself: name node 0's address if it is another one"
            : "start node 0, and check that its address and port can be reached from here";
    throw Error(error.kind(), fmt::format("node 0 does not answer at {}: {}", host_, error.what()),
                error.help().empty() ? help : error.help());
  }
}

json NodeLink::get(const std::string& name, const std::string& what) {
  const Deadline deadline = Deadline::after(limit_);
  while (true) {
    try {
      return session_
          .call({{"type", "get"}, {"key", key(name)}, {"timeout_ms", kGetTime.count()}}, kAnswerTime,
                "the job's store at " + host_)
          .at("value");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout || deadline.expired()) {
        throw Error(error.kind(), fmt::format("{}: {}", what, error.what()), error.help());
      }
    }
  }
}

Offer NodeLink::fetch_job() {
  const json text = get("job", fmt::format("no dtorch job waits at {}", host_));
  return read_offer(text.is_string() ? text.get_ref<const std::string&>() : std::string());
}

bool NodeLink::claim(int node_rank) {
  const json answer =
      session_.call({{"type", "add"}, {"key", key(fmt::format("claim/{}", node_rank))}, {"amount", 1}},
                    kAnswerTime, "the job's store");
  if (answer.at("value").get<std::int64_t>() != 1) return false;
  session_.call({{"type", "set"}, {"key", key(fmt::format("host/{}", node_rank))}, {"value", host_name()}},
                kAnswerTime, "the job's store");
  return true;
}

std::string NodeLink::holder(int node_rank) {
  return get(fmt::format("host/{}", node_rank), "which machine has the node rank").get<std::string>();
}

void NodeLink::begin_attempt(int attempt, int node_rank, int nnodes) {
  attempt_ = attempt;
  node_rank_ = node_rank;
  nnodes_ = nnodes;
  from_afar_ = false;
  if (nnodes == 1) return;
  session_.supervisor().on_cause = [this, attempt](const Failure& failure) { share(failure, attempt); };
  watch(attempt);
}

void NodeLink::watch(int attempt) {
  const json request{
      {"type", "get"}, {"key", attempt_key(attempt, "failure")}, {"timeout_ms", kGetTime.count()}};
  session_.agent().request(request, [this, attempt](const json& answer) {
    if (attempt != attempt_) return;
    if (answer.value("type", "") == "value") {
      const auto [node, failure] = read_shared(answer);
      if (node == node_rank_) return;
      from_afar_ = true;
      session_.supervisor().fail(failure);
    } else if (answer.value("kind", "") == to_string(ErrorKind::timeout)) {
      watch(attempt);
    } else {
      Failure failure;
      failure.kind = ErrorKind::lost;
      failure.host = host_name();
      failure.message = fmt::format("the launcher of node 0{}{} is gone", host_.empty() ? "" : " at ", host_);
      from_afar_ = true;
      session_.supervisor().fail(failure);
    }
  });
}

void NodeLink::share(const Failure& failure, int attempt) {
  if (from_afar_) return;
  unsent_ = 1;
  const json value{{"node", node_rank_}, {"failure", failure}};
  // Whoever counts to one first was first; the others' causes are consequences.
  const json request{{"type", "add"}, {"key", attempt_key(attempt, "failures")}, {"amount", 1}};
  session_.agent().request(request, [this, attempt, value](const json& answer) {
    if (answer.value("type", "") != "value" || answer.value("value", 0) != 1) {
      unsent_ = 0;
      return;
    }
    session_.agent().request(
        {{"type", "set"}, {"key", attempt_key(attempt, "failure")}, {"value", value.dump()}},
        [this](const json&) { unsent_ = 0; });
  });
}

JobOutcome NodeLink::run_to_the_end(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const JobEnded&) {
  } catch (const Error& error) {
    session_.supervisor().fail(failure_of(error));
  }
  Supervisor& supervisor = session_.supervisor();
  supervisor.pump(Deadline::after(milliseconds(0)));
  while (!supervisor.over()) supervisor.pump(Deadline::after(std::chrono::seconds(1)));
  JobOutcome outcome = supervisor.finish();
  if (outcome.failure) leave(/*well=*/false);
  return outcome;
}

void NodeLink::leave(bool well) {
  if (nnodes_ == 1 || attempt_ < 0) return;
  const Deadline spread = Deadline::after(kFailureSpread);
  while (unsent_ != 0 && !spread.expired()) session_.supervisor().pump(spread);
  const json count{
      {"type", "add"}, {"key", attempt_key(attempt_, "left")}, {"amount", node_rank_ == 0 ? 0 : 1}};
  const Deadline deadline = Deadline::after(well ? kLastRanks : kFailureSpread);
  while (true) {
    auto left = std::make_shared<std::int64_t>(-1);
    session_.agent().request(count,
                             [left](const json& answer) { *left = answer.value("value", std::int64_t{0}); });
    while (*left < 0 && !deadline.expired()) {
      well ? session_.pump(deadline) : session_.supervisor().pump(deadline);
    }
    if (node_rank_ != 0 || *left >= nnodes_ - 1) return;
    if (deadline.expired()) {
      if (!well) return;
      throw Error(ErrorKind::timeout, fmt::format("{} of {} other nodes did not end within {} s of this one",
                                                  nnodes_ - 1 - std::max<std::int64_t>(*left, 0), nnodes_ - 1,
                                                  kLastRanks.count() / 1000));
    }
    const Deadline pause = Deadline::after(kPollPause);
    while (!pause.expired()) well ? session_.pump(pause) : session_.supervisor().pump(pause);
  }
}

}  // namespace dtorch
