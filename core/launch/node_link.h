// How the launchers of several nodes work together, through the job's store: who is which node, and what failed first.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/endpoint.h"
#include "core/launch/offer.h"
#include "core/launch/session.h"

namespace dtorch {

/** One node's end. With one node nothing is ever sent. Calls throw like Session::call. */
class NodeLink {
 public:
  /** `limit` bounds every wait for other nodes. The session must outlive it. */
  NodeLink(Session& session, std::chrono::milliseconds limit) : session_(session), limit_(limit) {}

  /** Node 0: tells what the job is, once the store is served. */
  void offer(const Offer& job);
  /** Other nodes: reaches the store. Throws Error(timeout) that names the endpoint. */
  void connect(const Endpoint& endpoint);
  /** Other nodes: what node 0 offers, checked to be an offer. */
  Offer fetch_job();
  /** Takes this node rank for this machine; false if another machine has it. */
  bool claim(int node_rank);
  /** The machine that has it. */
  std::string holder(int node_rank);

  /** From now on the first failure of any node ends this attempt on all of them. */
  void begin_attempt(int attempt, int node_rank, int nnodes);
  /**
   * Says that this node is through, and on node 0, whose store the others need, waits for them: after a success as long as
   * ranks may differ, after a failure a second. Pumps; throws JobEnded if another node fails meanwhile.
   */
  void leave(bool well);
  /**
   * Runs `attempt`, turns what it throws into the job's failure, ends the ranks and reports how it went, to the other nodes
   * too. `attempt` calls leave(true) itself where all went well.
   */
  JobOutcome run_to_the_end(const std::function<void()>& attempt);

 private:
  void watch(int attempt);
  void share(const Failure& failure, int attempt);
  nlohmann::json get(const std::string& key, const std::string& what);

  Session& session_;
  std::chrono::milliseconds limit_;
  std::string host_;  ///< node 0's endpoint, for messages
  int node_rank_ = 0;
  int nnodes_ = 1;
  int attempt_ = -1;
  bool from_afar_ = false;  ///< this attempt's failure is another node's: not to be shared again
  int unsent_ = 0;          ///< answers that a failure's sharing waits for
};

}  // namespace dtorch
