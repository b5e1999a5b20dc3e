// The door of libdtorch.so: the only header of the part with tensors that the command line includes. Plain
// types only; the executable finds `dtorch_engine` with dlsym after opening the library, so that --help never
// loads libtorch.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace dtorch::engine {

/** Runs one rank of a training job, to its end. */
struct RankRequest {
  std::string spec_yaml;  ///< canonical spec (to_yaml)
  int control_fd =
      -1;  ///< the rank's end of the control channel; -1: no launcher of ours (torchrun, srun, mpirun)
  std::string losses_file;  ///< with --losses: rank R writes FILE.R; empty: none
  bool dry_run = false;
  std::string places;  ///< where the spec's values stand (SpecPlaces::to_text); may be empty
  bool json = false;  ///< without a control channel: JSON lines on stdout, as `dtorch run --json` writes them
  // Rank, world size, master: from the environment (env:// rules of core/comm/environment.h), which the
  // launcher sets too.
};

/** Runs one rank of a benchmark. */
struct BenchRankRequest {
  std::string request_json;  ///< a BenchRequest (core/base/bench_messages.h)
  int control_fd = -1;       ///< as above
};

/** The helper of a node's launcher: pre-flight, store server, watching of other nodes. Speaks
 * core/launch/agent.h's protocol. */
struct AgentRequest {
  int control_fd = -1;  ///< closed when the launcher dies
};

/**
 * What libdtorch offers. Each call returns an exit status for `exit_code(ErrorKind)`: nothing thrown passes
 * the door. With a control channel failures are reported on it; without one they are written to stderr as the
 * command line would.
 */
struct Engine {
  int abi;  ///< kAbi of the library
  int (*run_rank)(
      const RankRequest& request);  ///< 0, the ErrorKind as int + 1, or 128 + a signal that stopped it
  int (*run_bench_rank)(const BenchRankRequest& request);
  int (*run_agent)(const AgentRequest& request);
  std::vector<std::string> (*versions)();  ///< "libtorch 2.11.0", "gloo ...", one line each
};

inline constexpr int kAbi = 4;
using EntryPoint = const Engine* (*)();  ///< type of `extern "C" dtorch_engine`

}  // namespace dtorch::engine
