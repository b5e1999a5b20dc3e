#include "core/launch/node_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/address.h"
#include "core/base/host.h"
#include "core/base/json_text.h"

namespace dtorch {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kAnswerTime(10'000);

std::string list_nodes(const std::vector<int>& nodes) {
  return fmt::format("{} {}", nodes.size() == 1 ? "node" : "nodes", fmt::join(nodes, ", "));
}

}  // namespace

std::string NodeLink::job_key(const std::string& name) { return "dtorch/launch/" + name; }

std::string NodeLink::named(int node, const std::string& host) {
  return host.empty() ? fmt::format("node {}", node) : fmt::format("node {} ({})", node, host);
}

std::string NodeLink::here() const { return node_rank_ < 0 ? host_name() : named(node_rank_, host_name()); }

void NodeLink::serve_at(const Endpoint& endpoint) { where_ = to_string(endpoint); }

void NodeLink::connect(const Endpoint& endpoint) {
  where_ = to_string(endpoint);
  try {
    session_.call({{"type", "connect"},
                   {"host", endpoint.host},
                   {"port", endpoint.port},
                   {"timeout_ms", limit_.count()}},
                  limit_ + kAnswerTime, "the connection to node 0 at " + where_);
  } catch (const Error& error) {
    const std::string help =
        is_loopback(endpoint.host)
            ? endpoint.host + " is this machine itself: name node 0's address if it is another one"
            : "start node 0, and check that its address and port can be reached from here";
    throw Error(error.kind(), fmt::format("node 0 does not answer at {}: {}", where_, error.what()),
                error.help().empty() ? help : error.help());
  }
}

void NodeLink::connect(const std::string& url) {
  where_ = url;
  folder_ = true;
  session_.call({{"type", "connect"}, {"url", url}}, kAnswerTime, "the folder of " + url);
}

void NodeLink::begin(int node_rank, int nnodes) {
  node_rank_ = node_rank;
  nnodes_ = nnodes;
  begin_stage(kSetup);
}

json NodeLink::get(const std::string& name, const std::string& what) {
  const auto begun = Clock::now();
  const Deadline deadline = Deadline::after(limit_);
  auto next_report = begun + kReportEvery;
  while (true) {
    try {
      return session_
          .call({{"type", "get"}, {"key", job_key(name)}, {"timeout_ms", kGetTime.count()}}, kAnswerTime,
                "the job's store at " + where_)
          .at("value");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout || deadline.expired()) {
        throw Error(error.kind(), fmt::format("{}: {}", what, error.what()), error.help());
      }
    }
    if (Clock::now() < next_report) continue;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begun).count();
    observer_.log(-1, "info", fmt::format("for {} s: {}", seconds, what));
    next_report += kReportEvery;
  }
}

std::int64_t NodeLink::counted(const json& answer) {
  const json value = answer.is_object() ? answer.value("value", json()) : json();
  return value.is_number_integer() ? value.get<std::int64_t>() : 0;
}

std::int64_t NodeLink::add(const std::string& name, std::int64_t amount) {
  return counted(session_.call({{"type", "add"}, {"key", job_key(name)}, {"amount", amount}}, kAnswerTime,
                               "the job's store"));
}

void NodeLink::offer(const Offer& job) {
  session_.call({{"type", "set"}, {"key", job_key("job")}, {"value", to_text(job)}}, kAnswerTime,
                "the job's store");
}

Offer NodeLink::fetch_job() {
  const json text = get("job", fmt::format("no dtorch job waits at {}", where_));
  return read_offer(text.is_string() ? text.get_ref<const std::string&>() : std::string());
}

const NodeInfo& NodeLink::learn(int node) {
  const auto found = known_.find(node);
  if (found != known_.end()) return found->second;
  const json text = get(fmt::format("node/{}", node), fmt::format("node {} does not say who it is", node));
  const json info = json::parse(text.is_string() ? text.get<std::string>() : "", nullptr, false);
  const json host = info.is_object() ? info.value("host", json()) : json();
  const json ranks = info.is_object() ? info.value("ranks", json()) : json();
  if (!host.is_string() || !ranks.is_number_integer() || ranks < 1 || ranks > kMaxRanksPerNode) {
    throw Error(ErrorKind::disagree, fmt::format("what node {} says of itself is malformed", node),
                "does another version of dtorch, or another program, run there?");
  }
  return known_[node] = {host.get<std::string>(), ranks.get<int>()};
}

std::pair<std::string, std::string> NodeLink::both_names() { return {named(0, learn(0).host), here()}; }

void NodeLink::compare(const Terms& node_0, const Terms& here) {
  for (std::size_t i = 0; i < here.size() && i < node_0.size(); ++i) {
    if (node_0[i] == here[i]) continue;
    const auto [first, self] = both_names();
    const std::string& name = here[i].first;
    throw Error(ErrorKind::disagree,
                fmt::format("{} was started with {} {}, {} with {} {}", first, name, node_0[i].second, self,
                            name, here[i].second),
                "start all nodes alike; what must differ can follow GROUP_RANK, the node's number");
  }
}

bool NodeLink::try_claim(int node_rank, int ranks) {
  if (add(fmt::format("claim/{}", node_rank), 1) != 1) return false;
  node_rank_ = node_rank;
  const json info{{"host", host_name()}, {"ranks", ranks}};
  session_.call(
      {{"type", "set"}, {"key", job_key(fmt::format("node/{}", node_rank))}, {"value", json_text(info)}},
      kAnswerTime, "the job's store");
  if (!folder_) {  // a share in a folder shows signs of life by itself
    session_.agent().request({{"type", "beat"}, {"key", job_key(fmt::format("beat/{}", node_rank))}},
                             [](const json&) {});
  }
  leave_will();  // now with this node's name
  if (node_rank != 0) learn(0);
  return true;
}

void NodeLink::claim(int node_rank, int ranks) {
  if (try_claim(node_rank, ranks)) return;
  throw Error(ErrorKind::disagree,
              fmt::format("node rank {} is already taken by {}, but {} was started as it too", node_rank,
                          learn(node_rank).host, host_name()),
              "give each machine a --node-rank of its own");
}

std::vector<int> NodeLink::missing_nodes(const std::function<std::int64_t(const std::string&)>& count) {
  std::vector<int> missing;
  for (int node = 0; node < nnodes_; ++node) {
    if (node != node_rank_ && known_.count(node) == 0 && count(fmt::format("claim/{}", node)) < 1)
      missing.push_back(node);
  }
  return missing;
}

void NodeLink::report_missing(Clock::time_point since) {
  const auto missing = missing_nodes([this](const std::string& name) { return add(name, 0); });
  for (int node = 0; node < nnodes_; ++node) {
    if (known_.count(node) != 0 || std::find(missing.begin(), missing.end(), node) != missing.end()) continue;
    learn(node);
  }
  const auto waited = Clock::now() - since;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited).count();
  std::vector<std::string> come;
  for (const auto& [node, info] : known_) come.push_back(named(node, info.host));
  if (missing.empty()) {
    observer_.log(-1, "info",
                  fmt::format("waiting at {} for {} s: all nodes have come, not all are ready: {}", where_,
                              seconds, fmt::join(come, ", ")));
    return;
  }
  const std::string who = fmt::format("{} of {} {} not come; here: {}", list_nodes(missing), nnodes_,
                                      missing.size() == 1 ? "has" : "have", fmt::join(come, ", "));
  if (waited < limit_) {
    observer_.log(-1, "info", fmt::format("waiting at {} for {} s: {}", where_, seconds, who));
    return;
  }
  throw Error(ErrorKind::timeout,
              fmt::format("{} of {} did not come to {} within {} s", list_nodes(missing), nnodes_, where_,
                          std::chrono::duration<double>(limit_).count()),
              "start one launcher on each machine, with its --node-rank; see what became of those");
}

void NodeLink::gather() {
  if (!linked()) return;
  arrive();
  const auto begun = Clock::now();
  const auto every = std::min(kReportEvery, limit_);
  await_end(Deadline::after(limit_), every, [&] { report_missing(begun); });
}

std::vector<NodeInfo> NodeLink::nodes() {
  std::vector<NodeInfo> result;
  for (int node = 0; node < nnodes_; ++node) result.push_back(learn(node));
  return result;
}

}  // namespace dtorch
