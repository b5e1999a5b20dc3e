// What `run` and `join` have in common: their output flags, and what the launcher must know of a spec.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "cli/run_view.h"
#include "core/job/spec.h"
#include "core/launch/launcher.h"

namespace dtorch::cli {

/** --json, --quiet, --color, --progress. */
struct OutputFlags {
  bool json = false;
  bool quiet = false;
  std::string color = "auto";
  std::string progress = "auto";

  void add_to(CLI::App& command);
  OutputStyle style() const;
};

/** What `dtorch run` shows of this job. */
RunViewOptions view_options(const JobSpec& spec, const OutputFlags& flags, bool dry_run);

/** Fills in the spec's canonical text and what it says about nodes and timeouts. */
void take_spec(RunOptions& options, const JobSpec& spec);

/**
 * Makes sure, before anything starts, that the files that the flags name can be written on this node: --losses FILE.R for
 * its ranks, --log-dir. Leaves nothing behind and empties no file. Throws Error(cannot_create).
 */
void check_outputs(const RunOptions& options);

/**
 * How many ranks each node has: the slots of nodes.hosts, else the ranks split evenly over `nnodes` (0: not given, one).
 * Throws Error(usage) or Error(spec) where the numbers do not fit together.
 */
std::vector<int> ranks_per_node(const JobSpec& spec, int nnodes);

}  // namespace dtorch::cli
