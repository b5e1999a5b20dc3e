// How ranks find each other: init_method → a store, a rank and a world size. torch.distributed.rendezvous's
// counterpart.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/comm/backend_factory.h"
#include "core/comm/environment.h"

namespace dtorch {

struct RendezvousRequest {
  std::string init_method;  ///< tcp://host:port, file:///path, shared_filesystem:///dir, env://
  std::optional<int>
      rank;  ///< not given: from the URL's ?rank=, the environment, or assigned (shared_filesystem)
  std::optional<int> world_size;
  std::string run_id;  ///< keys are prefixed by run id and attempt; empty: from the environment, or agreed
                       ///< through the store
  int attempt = 0;     ///< equal on all ranks (torchrun's RESTART_COUNT is not: leave 0)
  std::string digest;  ///< of the resolved spec and versions; compared across ranks
  std::string digest_text;  ///< what the digest is of, a few lines "key: value", to show where ranks differ
  bool serve = true;        ///< tcp://, env://: rank 0 runs the store server itself (false: an agent does)
  Deadline deadline;
};

/** Error(timeout) of a rendezvous that knows who did not come. */
class MissingRanksError : public Error {
 public:
  MissingRanksError(const std::string& message, std::vector<int> missing, std::string help)
      : Error(ErrorKind::timeout, message, std::move(help)), missing_(std::move(missing)) {}
  const std::vector<int>& missing() const { return missing_; }

 private:
  std::vector<int> missing_;
};

/** Destroying it cleans up what this rank made (files of file:// and shared_filesystem://). */
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual StorePtr store() const = 0;  ///< prefixed: safe for a group's keys
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
};

/**
 * Blocks until all ranks are there. While it waits it logs every few seconds which ranks are missing and from
 * which hosts the others came. Throws Error(timeout) naming the ranks that never came; Error(disagree) for
 * duplicate ranks, another world size or digest (both values shown); Error(os_resource) for a busy port,
 * naming its owner if it can; Error(spec) for a malformed URL; Error(lost) when the store goes away.
 */
std::unique_ptr<Rendezvous> rendezvous(const RendezvousRequest& request);

/** Serves a TCPStore on an already bound, listening socket (the descriptor is taken over) until destroyed. */
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  virtual int port() const = 0;
  virtual StorePtr store() const = 0;  ///< this process's own client
};
std::unique_ptr<StoreServer> serve_store(int listen_fd);
/** A client of a TCPStore served elsewhere. Throws Error(timeout) naming the endpoint and the last error. */
StorePtr connect_store(const std::string& host, int port, Deadline deadline);

}  // namespace dtorch
