// Who am I in this job? The env:// rules: torchrun's variables, Open MPI's, MVAPICH's, PMI's, Slurm's, in
// that order (innermost launcher first); design.md §7's table.
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace dtorch {

struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  std::optional<int> local_world_size;
  std::string master_address;
  int master_port = 0;
  bool agent_store = false;  ///< TORCHELASTIC_USE_AGENT_STORE is exactly "True": rank 0 is a client too
  std::string run_id;        ///< TORCHELASTIC_RUN_ID, SLURM_JOB_ID.SLURM_STEP_ID, ...; may be empty
  int restart_count = 0;
  bool same_attempt = false;  ///< restart_count is sure to be the same on all ranks
  std::string launcher;       ///< "torchrun", "dtorch", "Open MPI", "MVAPICH", "PMI", "Slurm", "Kubernetes"
};

using GetEnv = std::function<const char*(const char*)>;

/** Whether any launcher's rank variable is set. */
bool is_launched_rank(const GetEnv& get);
/** Throws Error(spec) that names every missing or malformed variable and says what to set. */
RankEnvironment read_rank_environment(const GetEnv& get);
/** The same for ranks that meet without a master (file://, shared_filesystem://): its address may be absent. */
RankEnvironment read_rank_identity(const GetEnv& get);

}  // namespace dtorch
