#include "cli/run_options.h"

#include <fmt/format.h>

#include <numeric>

#include "core/job/load.h"

namespace dtorch::cli {

void OutputFlags::add_to(CLI::App& command) {
  command.add_flag("--json", json, "JSON lines on standard output");
  command.add_flag("-q,--quiet", quiet, "Only warnings and errors");
  command.add_option("--color", color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command.add_option("--progress", progress, "auto (a board on a terminal), plain or none")
      ->check(CLI::IsMember({"auto", "plain", "none"}));
}

OutputStyle OutputFlags::style() const {
  return decide_output({*parse_color(color), *parse_progress(progress), quiet, json}, surroundings());
}

RunViewOptions view_options(const JobSpec& spec, const OutputFlags& flags, bool dry_run) {
  RunViewOptions view;
  view.style = flags.style();
  view.job = spec.name;
  view.world_size = spec.world_size;
  view.backend = spec.backend;
  view.dataset = spec.dataset.type;
  view.interval = spec.metrics.interval;
  view.dry_run = dry_run;
  return view;
}

void take_spec(RunOptions& options, const JobSpec& spec) {
  options.spec_yaml = to_yaml(spec);
  options.init_method = spec.init_method;
  options.bind_cores = spec.nodes.bind_cores;
  options.threads = spec.nodes.threads;
  options.rendezvous_timeout = spec.timeouts.rendezvous;
  options.init_timeout = spec.timeouts.init;
  options.shutdown_timeout = spec.timeouts.shutdown;
}

std::vector<int> ranks_per_node(const JobSpec& spec, int nnodes) {
  std::vector<int> ranks;
  for (const auto& host : spec.nodes.hosts) ranks.push_back(host.slots);
  if (!ranks.empty()) {
    const int slots = std::accumulate(ranks.begin(), ranks.end(), 0);
    if (nnodes != 0 && nnodes != static_cast<int>(ranks.size())) {
      throw Error(ErrorKind::usage,
                  fmt::format("--nnodes {}, but the spec names {} hosts", nnodes, ranks.size()));
    }
    if (slots != spec.world_size) {
      throw Error(ErrorKind::spec,
                  fmt::format("nodes.hosts has {} slots, but world_size is {}", slots, spec.world_size));
    }
    return ranks;
  }
  const int count = nnodes == 0 ? 1 : nnodes;
  if (spec.world_size % count != 0) {
    throw Error(ErrorKind::spec,
                fmt::format("world_size {} cannot be split evenly over {} nodes", spec.world_size, count),
                "name the hosts and their slots in nodes.hosts");
  }
  return std::vector<int>(static_cast<std::size_t>(count), spec.world_size / count);
}

}  // namespace dtorch::cli
