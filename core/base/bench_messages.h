// What `dtorch bench` asks of its ranks, and what they answer, as plain structs with their JSON form.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dtorch {

/** The collectives that can be timed, in the order in which `all` runs them. */
const std::vector<std::string>& bench_operations();

/** What every rank of a benchmark is to time. The launcher has checked it. */
struct BenchRequest {
  std::vector<std::string> operations;  ///< of bench_operations()
  std::vector<std::string> backends;
  std::vector<std::int64_t> sizes;  ///< bytes, as nccl-tests counts them: the larger of what goes in and out
  std::string type = "float32";
  std::string reduction = "sum";
  int root = 0;
  int iterations = 0;           ///< timed calls a size; 0: as many as make sense for it
  int warmup = 5;               ///< calls before them
  int checks = 1;               ///< calls whose result is compared, element by element
  bool backend_memory = false;  ///< buffers from Backend::allocate
  int world_size = 2;
  std::string init_method;
  std::string interface;
  std::int64_t rendezvous_ms = 300'000;
  std::int64_t collective_ms = 1'800'000;
};

/** One column group of a row: the calls of one size, in or out of place. A call takes as long as its slowest rank. */
struct BenchTimes {
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double max_us = 0;
  double skew_us = 0;       ///< median over calls of slowest rank minus fastest
  int slowest_rank = 0;     ///< the one that was slowest in most calls
  std::int64_t wrong = -1;  ///< elements that were not as they should be, all ranks together; -1: not checked
};

/** rank 0 → launcher, type "bench": one operation, backend and size. */
struct BenchRow {
  std::string operation;
  std::string backend;
  std::int64_t bytes = 0;
  std::int64_t elements = 0;
  std::string type;
  std::string reduction;  ///< empty where nothing is reduced
  int root = -1;          ///< -1 where there is none
  int world_size = 1;
  int iterations = 0;
  std::string note;  ///< why it was not timed; empty: it was
  std::optional<BenchTimes> out_of_place;
  std::optional<BenchTimes> in_place;
};

/** rank 0 → launcher, type "bench_start": before the first row. */
struct BenchStart {
  double memcpy_gb_s = 0;  ///< each rank copying 32 MiB at the same time, the slowest rank's best of five
  std::vector<std::string> hosts;  ///< of each rank
};

void to_json(nlohmann::json& json, const BenchRequest& request);
void from_json(const nlohmann::json& json, BenchRequest& request);
void to_json(nlohmann::json& json, const BenchTimes& times);
void from_json(const nlohmann::json& json, BenchTimes& times);
void to_json(nlohmann::json& json, const BenchRow& row);
void from_json(const nlohmann::json& json, BenchRow& row);
void to_json(nlohmann::json& json, const BenchStart& start);
void from_json(const nlohmann::json& json, BenchStart& start);

}  // namespace dtorch
