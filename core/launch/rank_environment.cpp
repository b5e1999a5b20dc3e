#include "core/launch/rank_environment.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <thread>

#include "core/launch/cleanup.h"

namespace dtorch {
namespace {

/** A number, or one for each nested level: 4,2. OpenMP libraries pass over anything else and use all cores in every rank. */
bool threads_are_set() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  return value != nullptr && *value >= '1' && *value <= '9';
}

/** An empty value takes the variable out. */
std::map<std::string, std::string> variables(const RankPlace& place) {
  const bool master = !place.master_address.empty();
  std::map<std::string, std::string> result{
      {"RANK", std::to_string(place.rank)},
      {"WORLD_SIZE", std::to_string(place.world_size)},
      {"LOCAL_RANK", std::to_string(place.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(place.local_world_size)},
      {"GROUP_RANK", std::to_string(place.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(place.nnodes)},
      {"ROLE_RANK", std::to_string(place.rank)},
      {"ROLE_WORLD_SIZE", std::to_string(place.world_size)},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", place.master_address},
      {"MASTER_PORT", master ? std::to_string(place.master_port) : ""},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(place.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(place.max_restarts)},
      {"TORCHELASTIC_RUN_ID", place.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", master ? "True" : "False"},
      {"TORCHELASTIC_ERROR_FILE", place.error_file},
      {kJobTag, place.job_tag},
  };
  if (place.threads > 0 || !threads_are_set()) {
    const int cores = static_cast<int>(allowed_cores().size());
    const int threads = place.threads > 0 ? place.threads : std::max(1, cores / place.local_world_size);
    result["OMP_NUM_THREADS"] = std::to_string(threads);
  }
  return result;
}

}  // namespace

std::vector<std::string> rank_environment(const RankPlace& place) {
  const auto ours = variables(place);
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (ours.count(text.substr(0, text.find('='))) == 0) result.push_back(text);
  }
  for (const auto& [name, value] : ours) {
    if (!value.empty()) result.push_back(name + "=" + value);
  }
  return result;
}

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) {  // more than 1024 cores
    for (unsigned core = 0; core < std::max(1U, std::thread::hardware_concurrency()); ++core) {
      cores.push_back(static_cast<int>(core));
    }
  }
  return cores;
}

std::vector<int> cores_of(int local_rank, int local_world_size) {
  const std::vector<int> all = allowed_cores();
  const auto count = static_cast<int>(all.size());
  if (count < local_world_size) return {all[static_cast<std::size_t>(local_rank % count)]};
  const int begin = count * local_rank / local_world_size;
  const int end = count * (local_rank + 1) / local_world_size;
  return {all.begin() + begin, all.begin() + end};
}

}  // namespace dtorch
