// How the launchers of several nodes work together, through the job's store: who is which node, whether they were started
// alike, what failed or stopped first, and when all of them are through.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/endpoint.h"
#include "core/launch/offer.h"
#include "core/launch/session.h"

namespace dtorch {

/** What a launcher tells the others of itself. */
struct NodeInfo {
  std::string host;
  int ranks = 0;
};

/**
 * One node's end. A job goes through stages: "setup", in which the nodes come and are compared, then one for each attempt.
 * A stage ends once for all nodes: when every one is through with it, or with the first failure or stop request of any.
 * With one node nothing is ever sent. Not thread-safe; calls throw like Session::call.
 */
class NodeLink {
 public:
  /** `limit` bounds the wait for nodes that have not come. The session and the observer must outlive it. */
  NodeLink(Session& session, JobObserver& observer, std::chrono::milliseconds limit)
      : session_(session), observer_(observer), limit_(limit) {}

  /** Node 0: where its store is, for messages. */
  void serve_at(const Endpoint& endpoint);
  /** Other nodes: reaches node 0's store. Throws Error(timeout) that names the endpoint. */
  void connect(const Endpoint& endpoint);
  /** Every node of a job that meets in a folder (file://, shared_filesystem://). */
  void connect(const std::string& url);
  /** From here on what goes wrong on one node ends the job on all. `node_rank` -1: not known yet. */
  void begin(int node_rank, int nnodes);
  /** Node 0: tells what the job is. */
  void offer(const Offer& job);
  /** Other nodes: what node 0 offers, checked to be an offer. */
  Offer fetch_job();
  /** Throws Error(disagree) that shows both values where node 0 was started otherwise. */
  void compare(const Terms& node_0, const Terms& here);
  /** "node 0 (alpha)", "node 1 (beta)": node 0's and this one's names in messages. */
  std::pair<std::string, std::string> both_names();
  /** Takes this node rank for this machine; false if another machine has it. From now on it must show signs of life. */
  bool try_claim(int node_rank, int ranks);
  /** The same; throws Error(disagree) that names the machine which has it. */
  void claim(int node_rank, int ranks);
  /** Nothing that goes wrong here is the job's business any more: it goes on without this machine. */
  void withdraw();

  /**
   * Ends the stage "setup": waits until every node has come and is ready, and tells every few seconds which ones are missing.
   * Throws Error(timeout) that names those that did not come; JobEnded if a node fails meanwhile.
   */
  void gather();
  /** All nodes, by node rank; after gather(). */
  std::vector<NodeInfo> nodes();
  /** Starts the stage of an attempt, from 0. */
  void begin_attempt(int attempt);
  /** Ends an attempt that went well here: waits as long as the other nodes live. Throws JobEnded if one fails. */
  void finish_attempt();
  /**
   * Runs `attempt`, turns what it throws into the job's failure, ends the ranks and reports how it went: with the first cause
   * of all nodes, which hear of it too.
   */
  JobOutcome run_to_the_end(const std::function<void()>& attempt);
  /** Whether the stage ended because a node is gone: no other attempt is possible. */
  bool node_is_gone() const { return end_ && end_->value("gone", false); }

 private:
  bool linked() const { return !stage_.empty(); }
  static std::string job_key(const std::string& name);
  static std::int64_t counted(
      const nlohmann::json& answer);  ///< what an "add" came to; 0 where it does not say
  static std::string named(int node, const std::string& host);
  std::string key(const std::string& name) const;  ///< of the present stage
  void begin_stage(const std::string& name);
  void leave_will();
  nlohmann::json end_value(nlohmann::json value) const;
  void watch(const std::string& stage);
  void heard(const nlohmann::json& end);
  void decide(const nlohmann::json& value);
  void arrive();
  void await_end(Deadline deadline, std::chrono::milliseconds report_every,
                 const std::function<void()>& report);
  void report_missing(Clock::time_point since);
  std::vector<int> missing_nodes(const std::function<std::int64_t(const std::string&)>& count);
  std::string here() const;
  void look_for_life();
  const NodeInfo& learn(int node);
  Failure lost_node(int node, const std::string& how) const;
  void part(const JobOutcome& outcome);
  void adopt(JobOutcome& outcome) const;
  std::optional<nlohmann::json> ask(const nlohmann::json& request, Deadline deadline);
  nlohmann::json get(const std::string& name, const std::string& what);
  std::int64_t add(const std::string& name, std::int64_t amount);

  struct Life {
    std::int64_t beats = 0;
    Clock::time_point since;
  };

  Session& session_;
  JobObserver& observer_;
  std::chrono::milliseconds limit_;
  std::string where_;  ///< where the nodes meet, for messages
  bool folder_ = false;
  int node_rank_ = 0;
  int nnodes_ = 1;
  static constexpr char kSetup[] = "setup";
  /** A "get" waits so long, then it is asked again: what is shared waits no longer behind it than FirstCause's patience. */
  static constexpr std::chrono::milliseconds kGetTime{40};
  static constexpr std::chrono::milliseconds kReportEvery{3'000};
  std::string stage_;                  ///< empty: nobody is to hear of us
  std::optional<nlohmann::json> end_;  ///< how the stage ended
  bool decided_ = false;               ///< this node has said how it ends; which counts if nobody was faster
  std::map<int, NodeInfo> known_;      ///< nodes that have come, as far as anybody looked
  std::map<int, Life> lives_;
  Clock::time_point next_look_;
};

}  // namespace dtorch
