#include "core/comm/rendezvous.h"

#include <fmt/format.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "core/base/listen.h"
#include "core/base/log.h"
#include "core/comm/bounded.h"
#include "core/comm/dir_store.h"
#include "core/comm/join.h"
#include "core/comm/run_folder.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;

/** Who this process is, from the request, the URL and the environment, which must not contradict each other.
 */
struct Identity {
  std::optional<int> rank;
  std::optional<int> world_size;
  std::string run_id;
  int attempt = 0;
  std::optional<RankEnvironment> environment;
};

std::optional<int> agree(const char* what, std::optional<int> given, std::optional<int> in_url,
                         const std::string& url) {
  if (given && in_url && *given != *in_url) {
    throw Error(ErrorKind::spec,
                fmt::format("{} is {} but init_method '{}' says {}", what, *given, url, *in_url),
                "give it once");
  }
  return given ? given : in_url;
}

/** What a launcher told this process; nothing without one. Only env:// needs all of it. */
std::optional<RankEnvironment> read_own_environment(InitScheme scheme) {
  const GetEnv get = [](const char* name) { return static_cast<const char*>(std::getenv(name)); };
  if (scheme == InitScheme::env) return read_rank_environment(get);
  if (!is_launched_rank(get)) return std::nullopt;
  for (const auto read : {read_rank_environment, read_rank_identity}) {
    try {
      return read(get);
    } catch (const Error& error) {
      log_debug(error.what());
    }
  }
  return std::nullopt;
}

Identity identify(const RendezvousRequest& request, const InitUrl& url) {
  Identity self{agree("the rank", request.rank, url.rank, request.init_method),
                agree("the world size", request.world_size, url.world_size, request.init_method),
                request.run_id, request.attempt, std::nullopt};
  self.environment = read_own_environment(url.scheme);
  if (!self.environment) return self;
  const auto& environment = *self.environment;
  const bool same = self.rank.value_or(environment.rank) == environment.rank &&
                    self.world_size.value_or(environment.world_size) == environment.world_size;
  if (!same && url.scheme != InitScheme::env) {
    // The caller counts its ranks otherwise: the launcher's words are not about them.
    self.environment.reset();
    return self;
  }
  self.rank = self.rank.value_or(environment.rank);
  self.world_size = self.world_size.value_or(environment.world_size);
  if (self.run_id.empty()) self.run_id = environment.run_id;
  if (environment.same_attempt) self.attempt = std::max(self.attempt, environment.restart_count);
  return self;
}

void validate(const Identity& self, const InitUrl& url, const std::string& init_method) {
  const bool assigns = url.scheme == InitScheme::shared_filesystem;
  if (!self.world_size || (!self.rank && !assigns)) {
    throw Error(ErrorKind::spec,
                fmt::format("init_method '{}': the {} is not given", init_method,
                            self.world_size ? "rank" : "world size"),
                "give rank and world_size, append ?rank=R&world_size=W, or start the ranks with a launcher");
  }
  if (*self.world_size < 1 || (self.rank && (*self.rank < 0 || *self.rank >= *self.world_size))) {
    throw Error(ErrorKind::spec,
                fmt::format("rank {} is not one of a world of {}", self.rank.value_or(0), *self.world_size),
                "ranks go from 0 to world_size - 1");
  }
}

std::string key_prefix(const Identity& self) {
  return fmt::format("dtorch/{}/{}", self.run_id.empty() ? "run" : self.run_id, self.attempt);
}

/** Joins on a thread of its own: a store that has stopped answering must not hold us past the deadline. */
JoinResult join_by_deadline(JoinRequest request) {
  constexpr auto kGrace = 3s;  // alarms at the deadline take a moment to be heard
  auto shared = std::make_shared<JoinRequest>(std::move(request));
  auto result = std::make_shared<JoinResult>();
  run_bounded([shared, result] { *result = join_ranks(*shared); }, shared->deadline.later(kGrace),
              fmt::format("rendezvous at {} timed out: the store does not answer", shared->where),
              "the process that serves it (rank 0 or the launcher) has stopped");
  return *result;
}

class Joined : public Rendezvous {
 public:
  Joined(StorePtr store, const JoinResult& result, int world_size, std::unique_ptr<StoreServer> server,
         std::shared_ptr<RunFolder> folder)
      : server_(std::move(server)),
        folder_(std::move(folder)),
        store_(std::move(store)),
        rank_(result.rank),
        world_size_(world_size) {}

  StorePtr store() const override { return store_; }
  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

 private:
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<RunFolder> folder_;
  StorePtr store_;
  int rank_;
  int world_size_;
};

JoinRequest join_request(const RendezvousRequest& request, const Identity& self, StorePtr store,
                         std::string where) {
  JoinRequest join;
  join.store = c10::make_intrusive<c10d::PrefixStore>(key_prefix(self), std::move(store));
  join.where = std::move(where);
  join.rank = self.rank.value_or(-1);
  join.world_size = *self.world_size;
  join.digest = request.digest;
  join.digest_text = request.digest_text;
  join.outlives = self.environment && self.environment->agent_store && !self.environment->same_attempt;
  join.deadline = request.deadline;
  return join;
}

std::unique_ptr<Rendezvous> finish(JoinRequest join, std::unique_ptr<StoreServer> server,
                                   std::shared_ptr<RunFolder> folder) {
  auto result = join_by_deadline(join);
  auto store = c10::make_intrusive<c10d::PrefixStore>(result.generation, join.store);
  log_debug(fmt::format("rank {} of {} joined at {}", result.rank, join.world_size, join.where));
  return std::make_unique<Joined>(std::move(store), std::move(result), join.world_size, std::move(server),
                                  std::move(folder));
}

/** Ranks on several machines cannot meet at an address that each takes for itself. */
void refuse_loopback_for_several_hosts(const Identity& self, const std::string& host) {
  if (!self.environment) return;
  const auto& environment = *self.environment;
  // Two launchers of ours, or two of torchrun's, may share a machine; the others' local size is the
  // machine's.
  const bool per_machine = environment.launcher != "torchrun" && environment.launcher != "dtorch";
  const bool several = environment.local_world_size && *environment.local_world_size < environment.world_size;
  if (!per_machine || !several || !leads_to_loopback(host)) return;
  throw Error(ErrorKind::spec,
              fmt::format("the master address '{}' is loopback, which every machine takes for itself, but {} "
                          "started {} ranks "
                          "with {} on this machine",
                          host, environment.launcher, environment.world_size, *environment.local_world_size),
              "set MASTER_ADDR to a name or address of rank 0's machine that the others reach");
}

std::unique_ptr<Rendezvous> rendezvous_tcp(const RendezvousRequest& request, const Identity& self,
                                           const std::string& host, int port) {
  refuse_loopback_for_several_hosts(self, host);
  const bool agent =
      self.environment && self.environment->agent_store && self.environment->master_port == port;
  const bool serves = request.serve && !agent && *self.rank == 0;
  if (port == 0 && *self.world_size > 1) {
    throw Error(ErrorKind::spec,
                fmt::format("init_method '{}': port 0 is any free one, which other ranks cannot know",
                            request.init_method),
                "name a port, or start the ranks with dtorch run or dtorch launch, which tell them");
  }
  std::unique_ptr<StoreServer> server;
  StorePtr store;
  if (serves) {
    server = serve_store(listen_on({host, port}, Foreign::listen_everywhere).socket.release());
    store = server->store();
    port = server->port();
  } else {
    store = connect_store(host, port, request.deadline);
  }
  auto join = join_request(request, self, store, fmt::format("tcp://{}", to_string(Endpoint{host, port})));
  join.serving = serves;
  return finish(std::move(join), std::move(server), nullptr);
}

std::unique_ptr<Rendezvous> rendezvous_dir(const RendezvousRequest& request, const Identity& self,
                                           const InitUrl& url) {
  const auto where = request.init_method.substr(0, request.init_method.find('?'));
  while (true) {
    auto folder = std::make_shared<RunFolder>(url.path, self.run_id);
    auto join = join_request(request, self, c10::make_intrusive<DirStore>(folder->path(), where), where);
    join.outlives = join.outlives || folder->restarted();
    join.on_poll = [folder] { folder->renew(); };
    try {
      return finish(std::move(join), nullptr, folder);
    } catch (const Error& error) {
      // The last rank of the run before ours was just cleaning up: not our loss.
      if (error.kind() != ErrorKind::lost || folder->exists() || request.deadline.expired()) throw;
      log_info(fmt::format("{}: an earlier run has just been cleaned up; joining anew", where));
    }
  }
}

}  // namespace

std::unique_ptr<Rendezvous> rendezvous(const RendezvousRequest& request) {
  const auto url = parse_init_url(request.init_method);
  const auto self = identify(request, url);
  validate(self, url, request.init_method);
  switch (url.scheme) {
    case InitScheme::tcp: return rendezvous_tcp(request, self, url.endpoint.host, url.endpoint.port);
    case InitScheme::env:
      return rendezvous_tcp(request, self, self.environment->master_address, self.environment->master_port);
    case InitScheme::file:
    case InitScheme::shared_filesystem: return rendezvous_dir(request, self, url);
  }
  throw Error(ErrorKind::spec, "unknown init_method");
}

}  // namespace dtorch
