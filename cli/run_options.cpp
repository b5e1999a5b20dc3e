#include "cli/run_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "core/base/fd.h"
#include "core/job/load.h"

namespace dtorch::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& flag, const std::string& path, int error_number) {
  throw Error(
      ErrorKind::cannot_create,
      fmt::format("{}: cannot write '{}': {}", flag, path, std::generic_category().message(error_number)),
      fmt::format("give {} a place that can be written", flag));
}

void check_file(const std::string& flag, const std::string& path) {
  // Not blocking: a named pipe waits for its reader only once there is something to say.
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.valid()) {
    ::unlink(path.c_str());
    return;
  }
  if (errno == EEXIST) file = Fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid() && errno != ENXIO) refuse(flag, path, errno);
}

/** A folder that is there or can be made, and takes files: tried, as rights alone do not tell (root, read-only mounts). */
void check_folder(const std::string& flag, const std::string& path) {
  std::error_code ignored;
  fs::path folder = fs::absolute(path, ignored);
  while (!fs::exists(folder, ignored) && folder != folder.parent_path()) folder = folder.parent_path();
  if (!fs::is_directory(folder, ignored)) refuse(flag, path, ENOTDIR);
  std::string probe = (folder / ".dtorch-XXXXXX").string();
  if (::mkdtemp(probe.data()) == nullptr) refuse(flag, path, errno);
  ::rmdir(probe.c_str());
}

}  // namespace

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
  options.collective_timeout = spec.timeouts.collective;
  options.shutdown_timeout = spec.timeouts.shutdown;
}

void check_outputs(const RunOptions& options) {
  if (!options.log_dir.empty()) check_folder("--log-dir", options.log_dir);
  if (options.losses_file.empty()) return;
  const auto here = options.ranks_per_node.begin() + options.node_rank;
  const int first = std::accumulate(options.ranks_per_node.begin(), here, 0);
  for (int rank = first; rank < first + *here; ++rank)
    check_file("--losses", fmt::format("{}.{}", options.losses_file, rank));
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
