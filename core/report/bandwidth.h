// What times of collectives mean: bandwidths as nccl-tests counts them, the alpha-beta model, expectations.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bench_messages.h"

namespace dtorch::report {

/** Bytes over time, in GB/s (10^9): nccl-tests' algbw. */
double algorithm_bandwidth(std::int64_t bytes, double microseconds);
/** The algorithm bandwidth times this is nccl-tests' busbw, comparable over world sizes: 2(n-1)/n for an all-reduce. */
double bus_factor(const std::string& operation, int world_size);
/** Bus bandwidth of the row's best column (in place where there is one); nothing if it was not timed or moves nothing. */
std::optional<double> bus_bandwidth(const BenchRow& row, const BenchTimes& times);

/** time = latency + bytes / bandwidth, fitted to p50 by least squares of relative errors, so that small sizes count too. */
struct LinearFit {
  std::string operation;
  std::string backend;
  double latency_us = 0;
  double gb_s = 0;  ///< bytes as sizes are counted, not bus bandwidth; infinite when size does not matter
  double worst_error = 0;  ///< largest relative error over the sizes
};
/** One for each operation and backend with at least two sizes, in the order of the rows. */
std::vector<LinearFit> fit_rows(const std::vector<BenchRow>& rows);

/** `allreduce@4MiB>=5GB/s`, `allreduce/shm@4B<=2us`. */
struct Expectation {
  std::string text;  ///< as written
  std::string operation;
  std::string backend;  ///< empty: every one
  std::int64_t bytes = 0;
  bool at_least = true;  ///< bus bandwidth in GB/s is at least value; false: p50 in µs is at most value
  double value = 0;
};
/** Throws Error(usage) that says which part is wrong. */
Expectation parse_expectation(const std::string& text);
/** Whether the row is one that the expectation speaks of. */
bool concerns(const Expectation& expectation, const BenchRow& row);
/** Empty when met, else a sentence with what was measured. */
std::string unmet(const Expectation& expectation, const BenchRow& row);

}  // namespace dtorch::report
