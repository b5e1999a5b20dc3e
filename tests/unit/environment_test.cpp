#include "core/comm/environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/base/error.h"
#include "core/comm/hostlist.h"

namespace dtorch {
namespace {

using Variables = std::map<std::string, std::string>;

GetEnv from(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
}

RankEnvironment read(const Variables& variables) { return read_rank_environment(from(variables)); }

std::string failure(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::spec);
    return std::string(error.what()) + "\n" + error.help();
  }
  return "no error";
}

const Variables kTorchrun{{"RANK", "3"},
                          {"LOCAL_RANK", "1"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "abc"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kSlurm{{"SLURM_PROCID", "5"},        {"SLURM_NTASKS", "8"},
                       {"SLURM_LOCALID", "1"},       {"SLURM_NTASKS_PER_NODE", "4"},
                       {"SLURM_JOB_ID", "4242"},     {"SLURM_STEP_ID", "1"},
                       {"SLURM_NODELIST", "login1"}, {"SLURM_STEP_NODELIST", "node[03-05,9],gpu1"}};

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

TEST(EnvironmentTest, ReadsTorchrun) {
  const auto rank = read(kTorchrun);
  EXPECT_EQ(rank.rank, 3);
  EXPECT_EQ(rank.world_size, 4);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_world_size, 2);
  EXPECT_EQ(rank.master_address, "node0");
  EXPECT_EQ(rank.master_port, 29500);
  EXPECT_TRUE(rank.agent_store);
  EXPECT_EQ(rank.run_id, "abc");
  EXPECT_EQ(rank.restart_count, 2);
  EXPECT_EQ(rank.launcher, "torchrun");
}

TEST(EnvironmentTest, AgentStoreIsOnlyExactlyTrue) {
  for (const char* value : {"true", "1", "TRUE", "False", ""}) {
    EXPECT_FALSE(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", value}})).agent_store) << value;
  }
}

TEST(EnvironmentTest, TorchrunsDefaultRunIdIsNone) {
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}})).run_id, "");
}

TEST(EnvironmentTest, DtorchsOwnRunIdCountsOnlyWhereOneLauncherMadeIt) {
  const Variables ours{
      {"TORCHELASTIC_RUN_ID", "host.1.ab"}, {"DTORCH_JOB", "host.1.ab"}, {"GROUP_WORLD_SIZE", "1"}};
  const auto one = read(with(kTorchrun, ours));
  EXPECT_EQ(one.launcher, "dtorch");
  EXPECT_EQ(one.run_id, "host.1.ab");
  EXPECT_TRUE(one.same_attempt);
  const auto several = read(with(with(kTorchrun, ours), {{"GROUP_WORLD_SIZE", "2"}}));
  EXPECT_EQ(several.run_id, "");
  EXPECT_FALSE(several.same_attempt);
  // torchrun below dtorch's launcher inherits the mark, but names the run itself.
  const auto inner = read(with(kTorchrun, {{"DTORCH_JOB", "host.1.ab"}, {"GROUP_WORLD_SIZE", "1"}}));
  EXPECT_EQ(inner.launcher, "torchrun");
  EXPECT_FALSE(inner.same_attempt);
}

TEST(EnvironmentTest, ReadsSlurmWithTheStepsFirstHostAsMaster) {
  const auto rank = read(kSlurm);
  EXPECT_EQ(rank.rank, 5);
  EXPECT_EQ(rank.world_size, 8);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_world_size, 4);
  EXPECT_EQ(rank.master_address, "node03");
  EXPECT_EQ(rank.run_id, "4242.1");
  EXPECT_EQ(rank.launcher, "Slurm");
  EXPECT_GE(rank.master_port, 1024);
  EXPECT_LT(rank.master_port, 32768);
  EXPECT_NE(rank.master_port, read(with(kSlurm, {{"SLURM_STEP_ID", "2"}})).master_port);
  const auto named = read(with(kSlurm, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}}));
  EXPECT_EQ(named.master_address, "10.0.0.1");
  EXPECT_EQ(named.master_port, 1234);
}

TEST(EnvironmentTest, SlurmFallsBackToTheJobsNodeList) {
  auto variables = kSlurm;
  variables.erase("SLURM_STEP_NODELIST");
  variables.erase("SLURM_NTASKS_PER_NODE");
  EXPECT_EQ(read(variables).master_address, "login1");
  EXPECT_FALSE(read(variables).local_world_size.has_value());
  EXPECT_NE(failure(with(kSlurm, {{"SLURM_STEP_NODELIST", "node[3"}})).find("SLURM_STEP_NODELIST"),
            std::string::npos);
}

TEST(EnvironmentTest, PmiThatSlurmSetsItselfIsSlurm) {
  // srun --mpi=pmi2: task 5 of 8 of step 1 of job 4242.
  const Variables pmi2{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"PMI_FD", "11"}, {"PMI_JOBID", "4242.1"}};
  const auto rank = read(with(kSlurm, pmi2));
  EXPECT_EQ(rank.launcher, "Slurm");
  EXPECT_EQ(rank.master_address, "node03");
  EXPECT_EQ(rank.local_rank, 1);
  // An mpirun in the step: as many processes on each node as it likes, the step's variables inherited.
  const auto inner =
      read(with(with(kSlurm, pmi2), {{"PMI_RANK", "6"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  EXPECT_EQ(inner.launcher, "PMI");
  EXPECT_EQ(inner.rank, 6);
}

TEST(EnvironmentTest, InnermostLauncherWins) {
  const Variables master{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  auto variables = with(kSlurm, master);
  EXPECT_EQ(read(variables).launcher, "Slurm");
  variables = with(
      variables, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(read(variables).launcher, "PMI");
  EXPECT_EQ(read(variables).local_rank, 1);
  variables =
      with(variables,
           {{"MV2_COMM_WORLD_RANK", "2"}, {"MV2_COMM_WORLD_SIZE", "3"}, {"MV2_COMM_WORLD_LOCAL_RANK", "2"}});
  EXPECT_EQ(read(variables).launcher, "MVAPICH");
  EXPECT_EQ(read(variables).rank, 2);
  variables = with(variables, {{"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_SIZE", "5"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(read(variables).launcher, "Open MPI");
  EXPECT_EQ(read(variables).world_size, 5);
  EXPECT_EQ(read(variables).local_world_size, 4);
  EXPECT_EQ(read(with(variables, kTorchrun)).launcher, "torchrun");
}

TEST(EnvironmentTest, KubernetesGivesTheIndexOnly) {
  const auto text = failure({{"JOB_COMPLETION_INDEX", "1"}});
  for (const char* name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    EXPECT_NE(text.find(name), std::string::npos) << text;
  const auto rank =
      read({{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "7"}});
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.launcher, "Kubernetes");
}

TEST(EnvironmentTest, NamesEverythingThatIsMissingOrMalformed) {
  const auto text =
      failure({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "0"}, {"MASTER_PORT", "70000"}});
  for (const char* part : {"OMPI_COMM_WORLD_RANK='x'", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_SIZE='0'", "MASTER_ADDR", "MASTER_PORT='70000'"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_NE(failure(with(kTorchrun, {{"RANK", "4"}})).find("RANK=4 is not below WORLD_SIZE=4"),
            std::string::npos);
  EXPECT_NE(failure({}).find("SLURM_PROCID"), std::string::npos);
}

TEST(EnvironmentTest, KnowsWhetherALauncherStartedUs) {
  EXPECT_FALSE(is_launched_rank(from({})));
  const Variables outer{{"SLURM_JOB_ID", "7"}, {"WORLD_SIZE", "2"}};
  EXPECT_FALSE(is_launched_rank(from(outer)));
  EXPECT_TRUE(is_launched_rank(from(kSlurm)));
}

TEST(HostlistTest, ExpandsAsScontrolDoes) {
  using Hosts = std::vector<std::string>;
  EXPECT_EQ(expand_hostlist("node[03-05,9],gpu1"), (Hosts{"node03", "node04", "node05", "node9", "gpu1"}));
  EXPECT_EQ(expand_hostlist("r[1-2]n[09-10]-ib"), (Hosts{"r1n09-ib", "r1n10-ib", "r2n09-ib", "r2n10-ib"}));
  EXPECT_EQ(expand_hostlist("a"), Hosts{"a"});
  EXPECT_EQ(expand_hostlist("n[098-101]"), (Hosts{"n098", "n099", "n100", "n101"}));
}

TEST(HostlistTest, RefusesWhatIsMalformedOrHuge) {
  for (const char* list : {"", ",", "a,", "n[1", "n]1[", "n[]", "n[1-]", "n[-1]", "n[5-3]", "n[x]", "n[[1]]",
                           "n[1-999999999]", "a[1-1000]b[1-1000]", "n[99999999999]"}) {
    EXPECT_THROW(expand_hostlist(list), Error) << list;
  }
}

}  // namespace
}  // namespace dtorch
