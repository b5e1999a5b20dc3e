#include "core/comm/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/comm/hostlist.h"

namespace dtorch {
namespace {

/** The variables of one kind of launcher. Null: it has none. */
struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* run_id;
  const char* restart_count;
};

// Innermost first: torchrun may run inside mpirun, mpirun inside a Slurm step, and each inherits the outer
// variables.
constexpr std::array kLaunchers{
    Launcher{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
             "TORCHELASTIC_RESTART_COUNT"},
    Launcher{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", nullptr},
    Launcher{"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
             "MV2_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr},
    Launcher{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, nullptr},
    Launcher{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", nullptr,
             "SLURM_RESTART_COUNT"},
    // An Indexed Job runs one rank a pod and tells it nothing but its index.
    Launcher{"Kubernetes", "JOB_COMPLETION_INDEX", "WORLD_SIZE", nullptr, nullptr, nullptr, nullptr},
};

/**
 * srun --mpi=pmi2 sets PMI's variables too, without hosts and local ranks, and names the job after its step. An mpirun in a
 * step inherits that name, but numbers its processes itself.
 */
bool slurm_speaks_pmi(const GetEnv& get) {
  const auto text = [&](const char* name) {
    const char* value = get(name);
    return std::string(value == nullptr ? "" : value);
  };
  return text("PMI_JOBID") == text("SLURM_JOB_ID") + "." + text("SLURM_STEP_ID") &&
         text("PMI_RANK") == text("SLURM_PROCID") && text("PMI_SIZE") == text("SLURM_NTASKS");
}

const Launcher* find_launcher(const GetEnv& get) {
  for (const auto& launcher : kLaunchers) {
    if (std::string_view(launcher.name) == "PMI" && slurm_speaks_pmi(get)) continue;
    if (get(launcher.rank) != nullptr) return &launcher;
  }
  return nullptr;
}

std::optional<long> parse_number(std::string_view text) {
  long value = 0;
  const auto* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

/** Reads variables and collects what is wrong with them, so that one error can name everything. */
class Reader {
 public:
  explicit Reader(const GetEnv& get) : get_(get) {}

  std::string text(const char* name) const {
    const char* value = name == nullptr ? nullptr : get_(name);
    return value == nullptr ? "" : value;
  }

  std::optional<int> optional_number(const char* name, long low, long high) {
    const auto value = text(name);
    if (value.empty()) return std::nullopt;
    const auto parsed = parse_number(value);
    if (parsed && *parsed >= low && *parsed <= high) return static_cast<int>(*parsed);
    problem(fmt::format("{}='{}' is not a whole number from {} to {}", name, value, low, high));
    return std::nullopt;
  }

  int number(const char* name, long low, long high) {
    if (text(name).empty()) missing(name);
    return optional_number(name, low, high).value_or(static_cast<int>(low));
  }

  void missing(const char* name) { missing_.emplace_back(name); }
  void problem(std::string what) { problems_.push_back(std::move(what)); }

  void throw_problems(const char* launcher, const char* rank_variable) const {
    if (missing_.empty() && problems_.empty()) return;
    std::string message = fmt::format("env://: started by {} ({} is set), but ", launcher, rank_variable);
    if (!missing_.empty()) {
      message += fmt::format("{} {} not set", fmt::join(missing_, ", "), missing_.size() == 1 ? "is" : "are");
    }
    if (!missing_.empty() && !problems_.empty()) message += "; ";
    message += fmt::format("{}", fmt::join(problems_, "; "));
    throw Error(ErrorKind::spec, message, help());
  }

 private:
  std::string help() const {
    std::vector<std::string> advice;
    for (const auto& name : missing_) {
      if (name == "MASTER_ADDR") {
        advice.emplace_back("MASTER_ADDR to rank 0's host");
      } else if (name == "MASTER_PORT") {
        advice.emplace_back("MASTER_PORT to a port that is free there");
      } else if (name == "WORLD_SIZE") {
        advice.emplace_back("WORLD_SIZE to the number of ranks");
      } else {
        advice.push_back(name);
      }
    }
    if (advice.empty()) return "correct them where the job is started";
    return fmt::format("set {}, the same on every rank, for example with export or your launcher's -x option",
                       fmt::join(advice, " and "));
  }

  const GetEnv& get_;
  std::vector<std::string> missing_;
  std::vector<std::string> problems_;
};

constexpr long kMaxRanks = 1'000'000;

/** The first host of the step's list: SLURM_LAUNCH_NODE_IPADDR is often the login node. */
std::string slurm_master(Reader& reader) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}) {
    const auto list = reader.text(name);
    if (list.empty()) continue;
    try {
      return expand_hostlist(list).front();
    } catch (const Error& error) {
      reader.problem(fmt::format("{}: {}", name, error.what()));
      return "";
    }
  }
  reader.problem("neither MASTER_ADDR nor SLURM_STEP_NODELIST is set");
  return "";
}

/** A port that every rank of a step derives alike, below the ephemeral ones; two steps of a job differ. */
int slurm_port(Reader& reader) {
  const auto job = parse_number(reader.text("SLURM_JOB_ID")).value_or(0);
  const auto step = parse_number(reader.text("SLURM_STEP_ID")).value_or(0);
  if (job <= 0 || step < 0) {
    reader.missing("MASTER_PORT");
    return 0;
  }
  constexpr long kFirst = 15'000;
  constexpr long kCount = 15'000;
  return static_cast<int>(kFirst + (job % kCount + step % kCount * 97) % kCount);
}

void read_master(Reader& reader, const Launcher& launcher, RankEnvironment& environment) {
  const bool slurm = std::string_view(launcher.name) == "Slurm";
  environment.master_address = reader.text("MASTER_ADDR");
  if (environment.master_address.empty()) {
    if (slurm) {
      environment.master_address = slurm_master(reader);
    } else {
      reader.missing("MASTER_ADDR");
    }
  }
  if (slurm && reader.text("MASTER_PORT").empty()) {
    environment.master_port = slurm_port(reader);
  } else {
    environment.master_port = reader.number("MASTER_PORT", 1, 65'535);
  }
}

std::string read_run_id(const Reader& reader, const Launcher& launcher) {
  if (std::string_view(launcher.name) == "Slurm") {
    const auto job = reader.text("SLURM_JOB_ID");
    return job.empty() ? "" : job + "." + reader.text("SLURM_STEP_ID");
  }
  auto id = reader.text(launcher.run_id);
  // torchrun's default: as good as no name.
  return id == "none" ? "" : id;
}

}  // namespace

bool is_launched_rank(const GetEnv& get) { return find_launcher(get) != nullptr; }

namespace {

RankEnvironment read_environment(const GetEnv& get, bool with_master) {
  const Launcher* launcher = find_launcher(get);
  if (launcher == nullptr) {
    throw Error(ErrorKind::spec,
                "env://: no launcher's variables are set (RANK, OMPI_COMM_WORLD_RANK, MV2_COMM_WORLD_RANK, "
                "PMI_RANK, SLURM_PROCID, JOB_COMPLETION_INDEX)",
                "start the ranks with dtorch launch, torchrun, srun or mpirun, or set RANK, WORLD_SIZE, "
                "MASTER_ADDR and MASTER_PORT for each");
  }
  Reader reader(get);
  RankEnvironment result;
  result.launcher = launcher->name;
  result.rank = reader.number(launcher->rank, 0, kMaxRanks - 1);
  result.world_size = reader.number(launcher->world_size, 1, kMaxRanks);
  result.local_world_size = reader.optional_number(launcher->local_world_size, 1, kMaxRanks);
  const auto local_rank = reader.optional_number(launcher->local_rank, 0, kMaxRanks - 1);
  result.local_rank =
      local_rank.value_or(result.local_world_size ? result.rank % *result.local_world_size : 0);
  result.restart_count = reader.optional_number(launcher->restart_count, 0, kMaxRanks).value_or(0);
  result.run_id = read_run_id(reader, *launcher);
  const bool torchrun = launcher == kLaunchers.data();
  // dtorch's launcher marks its processes; a run id of its own making is that mark, and each node makes another.
  if (torchrun && !result.run_id.empty() && result.run_id == reader.text("DTORCH_JOB")) {
    result.launcher = "dtorch";
    result.same_attempt = reader.text("GROUP_WORLD_SIZE") == "1";
    if (!result.same_attempt) result.run_id.clear();
  }
  result.agent_store = torchrun && reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (with_master) read_master(reader, *launcher, result);
  reader.throw_problems(launcher->name, launcher->rank);
  if (result.rank >= result.world_size) {
    throw Error(ErrorKind::spec, fmt::format("env://: {}={} is not below {}={}", launcher->rank, result.rank,
                                             launcher->world_size, result.world_size));
  }
  return result;
}

}  // namespace

RankEnvironment read_rank_environment(const GetEnv& get) {
  return read_environment(get, /*with_master=*/true);
}

RankEnvironment read_rank_identity(const GetEnv& get) { return read_environment(get, /*with_master=*/false); }

}  // namespace dtorch
