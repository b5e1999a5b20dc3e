// One rank of a training job, from its environment to its result.
#include <fmt/format.h>

#include <cstdlib>
#include <future>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backends/registry/registry.h"
#include "core/base/json_text.h"
#include "core/comm/environment.h"
#include "core/comm/process_group.h"
#include "core/comm/rendezvous.h"
#include "core/engine/digest.h"
#include "core/engine/meeting.h"
#include "core/engine/preflight.h"
#include "core/engine/rank_control.h"
#include "core/engine/reporting.h"
#include "core/engine/run.h"
#include "core/engine/sinks.h"
#include "core/job/load.h"
#include "core/job/places.h"
#include "core/train/trainer.h"

namespace dtorch::engine {
namespace {

class RankRun {
 public:
  RankRun(const RankRequest& request, RankControl& control) : request_(request), control_(control) {}
  void run();
  int rank() const { return rank_; }

 private:
  static ProcessGroupOptions group_options(const JobSpec& spec);
  void show_plan(const JobSpec& spec, const SpecPlaces& places, int local_ranks) const;

  const RankRequest& request_;
  RankControl& control_;
  int rank_ = -1;
};

void check_world_size(const JobSpec& spec, const RankEnvironment& environment) {
  if (environment.world_size == spec.world_size) return;
  throw Error(
      ErrorKind::disagree,
      fmt::format("the job spec says world_size {}, but {} started {} ranks", spec.world_size,
                  environment.launcher, environment.world_size),
      fmt::format("start {} ranks, or add -s world_size={}", spec.world_size, environment.world_size));
}

ProcessGroupOptions RankRun::group_options(const JobSpec& spec) {
  ProcessGroupOptions options;
  options.timeout = spec.timeouts.collective;
  options.init_timeout = spec.timeouts.init;
  options.interface = spec.nodes.interface;
  return options;
}

void RankRun::show_plan(const JobSpec& spec, const SpecPlaces& places, int local_ranks) const {
  const auto plan = preflight(spec, places, local_ranks);
  if (rank_ != 0) return;
  request_.json ? print_event("plan", plan) : print_result(json_text(plan, 2) + "\n");
}

void RankRun::run() {
  const auto spec = parse_resolved(request_.spec_yaml, "job spec");
  const auto environment =
      read_rank_identity([](const char* name) -> const char* { return std::getenv(name); });
  rank_ = environment.rank;
  check_world_size(spec, environment);
  const auto places = SpecPlaces::from_text(request_.places);
  const int local_ranks = environment.local_world_size.value_or(1);
  if (request_.dry_run) return show_plan(spec, places, local_ranks);
  resolve_device(spec.device);
  const auto& backend = find_backend(spec.backend);
  RankSink sink(
      control_,
      request_.losses_file.empty() ? nullptr : std::make_unique<LossesFile>(request_.losses_file, rank_),
      request_.json);
  sink.phase("joining");
  // Reading the data takes about as long as the ranks take to find each other.
  auto data = std::async(std::launch::async, [&] {
    return load_training_data(spec,
                              [&](const DatasetInfo& info) { check_fits(spec, info, places, local_ranks); });
  });
  const auto meeting = rendezvous(rendezvous_request(
      control_, environment, spec.init_method, job_digest(spec), Deadline::after(spec.timeouts.rendezvous)));
  const auto group = std::make_shared<ProcessGroup>(backend, meeting->store(), meeting->rank(),
                                                    meeting->world_size(), group_options(spec));
  control_.watch(group);
  train(spec, data.get(), group, sink, {&control_.stop_requested(), &control_.step(), meeting->store()});
  sink.close();
}

}  // namespace

int run_rank(const RankRequest& request) {
  quiet_libtorch();
  RankControl control(request.control_fd);
  RankRun rank(request, control);
  return run_reporting(
      control, [&] { rank.run(); }, [&] { return rank.rank(); }, request.json);
}

}  // namespace dtorch::engine
