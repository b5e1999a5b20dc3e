// One rank of a benchmark, from its environment to its last row.
#include "core/engine/bench.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backends/registry/registry.h"
#include "core/base/bench_messages.h"
#include "core/base/host.h"
#include "core/bench/measure.h"
#include "core/comm/environment.h"
#include "core/comm/process_group.h"
#include "core/comm/rendezvous.h"
#include "core/engine/meeting.h"
#include "core/engine/rank_control.h"
#include "core/engine/reporting.h"
#include "core/engine/run.h"

namespace dtorch::engine {
namespace {

using nlohmann::json;

class BenchRun {
 public:
  BenchRun(const BenchRankRequest& request, RankControl& control) : request_(request), control_(control) {}
  void run();
  int rank() const { return rank_; }

 private:
  ProcessGroupPtr connect(const std::string& backend) const;
  /** Rank 0 speaks for all. */
  void send(const char* type, json message) const;
  void time_all(const std::vector<ProcessGroupPtr>& groups);

  const BenchRankRequest& request_;
  RankControl& control_;
  BenchRequest bench_;
  std::unique_ptr<Rendezvous> meeting_;
  int rank_ = -1;
};

void BenchRun::send(const char* type, json message) const {
  if (rank_ != 0) return;
  message["type"] = type;
  control_.send(message);
}

ProcessGroupPtr BenchRun::connect(const std::string& backend) const {
  ProcessGroupOptions options;
  options.name = "bench/" + backend;
  options.timeout = std::chrono::milliseconds(bench_.collective_ms);
  options.init_timeout = std::chrono::milliseconds(bench_.rendezvous_ms);
  options.interface = bench_.interface;
  return std::make_shared<ProcessGroup>(find_backend(backend), meeting_->store(), meeting_->rank(),
                                        meeting_->world_size(), std::move(options));
}

void BenchRun::time_all(const std::vector<ProcessGroupPtr>& groups) {
  BenchStart start;
  start.memcpy_gb_s = bench::measure_memcpy(*groups.front());
  start.hosts = groups.front()->all_gather_bytes(host_name());
  send("bench_start", start);
  for (const auto& operation : bench_.operations) {
    const auto sizes = operation == "barrier" ? std::vector<std::int64_t>{0} : bench_.sizes;
    for (const auto size : sizes) {
      for (const auto& group : groups) {
        control_.watch(group);
        send("bench", bench::measure(*group, bench_, operation, size, [this] { ++control_.step(); }));
      }
    }
  }
  send("bench_end", json::object());
}

void BenchRun::run() {
  bench_ = json::parse(request_.request_json).get<BenchRequest>();
  const auto environment =
      read_rank_identity([](const char* name) -> const char* { return std::getenv(name); });
  rank_ = environment.rank;
  meeting_ = rendezvous(rendezvous_request(control_, environment, bench_.init_method,
                                           {request_.request_json, request_.request_json},
                                           Deadline::after(std::chrono::milliseconds(bench_.rendezvous_ms))));
  std::vector<ProcessGroupPtr> groups;
  for (const auto& backend : bench_.backends) groups.push_back(connect(backend));
  time_all(groups);
}

}  // namespace

json bench_preflight(const BenchRequest& request) {
  try {
    for (const auto& backend : request.backends) find_backend(backend);
  } catch (const Error& error) {  // here it is the command line that names them
    const auto kind = error.kind() == ErrorKind::spec ? ErrorKind::usage : error.kind();
    throw Error(kind, fmt::format("--backends: {}", error.what()), error.help());
  }
  return {{"operations", request.operations},
          {"backends", request.backends},
          {"sizes", request.sizes},
          {"dtype", request.type},
          {"reduction", request.reduction},
          {"world_size", request.world_size},
          {"init_method", request.init_method}};
}

int run_bench_rank(const BenchRankRequest& request) {
  quiet_libtorch();
  RankControl control(request.control_fd);
  BenchRun rank(request, control);
  return run_reporting(
      control, [&] { rank.run(); }, [&] { return rank.rank(); });
}

}  // namespace dtorch::engine
