// What a rank finds in its environment: torchrun's variables, so that any program written for torchrun runs.
#pragma once
#include <string>
#include <vector>

namespace dtorch {

/** Where a rank stands in its job. */
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int nnodes = 1;
  std::string
      master_address;  ///< empty: the ranks meet without a master, MASTER_ADDR and MASTER_PORT are left out
  int master_port = 0;
  std::string run_id;
  int restart_count = 0;
  int max_restarts = 0;
  std::string error_file;  ///< where a program may explain its failure; empty: none
  int threads = 0;         ///< OMP_NUM_THREADS; 0: this process's cores / local ranks, at least 1
  std::string job_tag;     ///< value of kJobTag
};

/**
 * This process's environment with the rank's variables set over it (and those of an outer launcher that do not apply taken
 * out). OMP_NUM_THREADS is kept if it is set and `threads` is 0.
 */
std::vector<std::string> rank_environment(const RankPlace& place);

/** The cores that this process may run on, ascending. */
std::vector<int> allowed_cores();

/** Local rank's even share of those cores; with fewer cores than ranks, one core that is shared. */
std::vector<int> cores_of(int local_rank, int local_world_size);

}  // namespace dtorch
