#include "core/bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/bench/workload.h"

namespace dtorch::bench {
namespace {

// Calls where the request leaves their number open: about this many bytes in all, within the limits.
constexpr std::int64_t kBytesPerSize = 512 << 20;
constexpr std::int64_t kFewestCalls = 20;
constexpr std::int64_t kMostCalls = 1000;

using Microseconds = std::chrono::duration<double, std::micro>;

/** As bytes for all_gather_bytes, and back. */
template <typename T>
std::string as_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::vector<std::vector<T>> gather_values(ProcessGroup& group, const std::vector<T>& mine) {
  std::vector<std::vector<T>> all;
  for (const auto& bytes : group.all_gather_bytes(as_bytes(mine))) {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    all.push_back(std::move(values));
  }
  return all;
}

/** Nearest rank; SORTED is not empty. */
double percentile(const std::vector<double>& sorted, double share) {
  const auto place = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(place, 1, sorted.size()) - 1];
}

/** From each rank's time of each call. A call takes as long as its slowest rank. */
BenchTimes summarise(const std::vector<std::vector<double>>& durations) {
  const std::size_t calls = durations.front().size();
  std::vector<double> slowest, spread;
  std::vector<int> was_slowest(durations.size(), 0);
  for (std::size_t call = 0; call < calls; ++call) {
    std::size_t last = 0, first = 0;
    for (std::size_t rank = 1; rank < durations.size(); ++rank) {
      if (durations[rank][call] > durations[last][call]) last = rank;
      if (durations[rank][call] < durations[first][call]) first = rank;
    }
    ++was_slowest[last];
    slowest.push_back(durations[last][call]);
    spread.push_back(durations[last][call] - durations[first][call]);
  }
  std::sort(slowest.begin(), slowest.end());
  std::sort(spread.begin(), spread.end());
  BenchTimes times;
  times.min_us = slowest.front();
  times.p50_us = percentile(slowest, 0.5);
  times.p99_us = percentile(slowest, 0.99);
  times.max_us = slowest.back();
  times.skew_us = percentile(spread, 0.5);
  times.slowest_rank =
      static_cast<int>(std::max_element(was_slowest.begin(), was_slowest.end()) - was_slowest.begin());
  return times;
}

std::int64_t calls_for(const BenchRequest& request, std::int64_t bytes) {
  if (request.iterations > 0) return request.iterations;
  return std::clamp(kBytesPerSize / std::max<std::int64_t>(bytes, 1), kFewestCalls, kMostCalls);
}

BenchTimes time_calls(ProcessGroup& group, Workload& work, const BenchRequest& request, std::int64_t calls,
                      const std::function<void()>& step) {
  for (int i = 0; i < request.warmup; ++i) {
    work.rewrite();
    work.call();
  }
  std::vector<double> mine;
  mine.reserve(static_cast<std::size_t>(calls));
  for (std::int64_t i = 0; i < calls; ++i) {
    work.rewrite();
    group.barrier()->wait();
    const auto started = Clock::now();
    work.call();
    mine.push_back(Microseconds(Clock::now() - started).count());
    step();
  }
  BenchTimes times = summarise(gather_values(group, mine));
  std::vector<std::int64_t> wrong{0};
  for (int i = 0; i < request.checks; ++i) {
    work.rewrite();
    work.call();
    wrong[0] += work.wrong();
  }
  if (request.checks == 0) return times;
  times.wrong = 0;
  for (const auto& of_rank : gather_values(group, wrong)) times.wrong += of_rank[0];
  return times;
}

}  // namespace

double measure_memcpy(ProcessGroup& group) {
  const std::vector<char> from(32 << 20, 1);
  std::vector<char> to(from.size());
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    group.barrier()->wait();
    const auto started = Clock::now();
    std::memcpy(to.data(), from.data(), to.size());
    const std::chrono::duration<double, std::nano> time = Clock::now() - started;
    best = std::max(best, static_cast<double>(to.size()) / time.count());
  }
  for (const auto& of_rank : gather_values(group, std::vector<double>{best}))
    best = std::min(best, of_rank[0]);
  return best;
}

BenchRow measure(ProcessGroup& group, const BenchRequest& request, const std::string& operation,
                 std::int64_t bytes, const std::function<void()>& step) {
  const OperationTraits traits = traits_of(operation);
  BenchRow row;
  row.operation = operation;
  row.backend = group.backend_name();
  row.type = request.type;
  if (traits.reduces) row.reduction = request.reduction;
  if (traits.has_root) row.root = request.root;
  row.world_size = group.size();
  const std::int64_t calls = calls_for(request, bytes);
  row.iterations = static_cast<int>(calls);
  const auto timed = [&](bool in_place) -> std::optional<BenchTimes> {
    const auto work = make_workload(group, {operation, request.type, request.reduction, bytes, request.root,
                                            in_place, request.backend_memory});
    if (!work) {
      row.bytes = bytes;
      row.note = fmt::format("{} B is less than an element for each of {} ranks", bytes, group.size());
      return {};
    }
    row.elements = work->elements();
    row.bytes = work->bytes();
    if (request.backend_memory && !work->in_backend_memory())
      row.note = "the backend has no memory of its own";
    return time_calls(group, *work, request, calls, step);
  };
  try {
    row.out_of_place = timed(false);
    if (traits.in_place && row.out_of_place) row.in_place = timed(true);
  } catch (const CollectiveError&) {
    throw;
  } catch (const Error& error) {  // refused, on every rank alike, before anything moved
    if (error.kind() != ErrorKind::usage) throw;
    row.note = error.what();
  }
  return row;
}

}  // namespace dtorch::bench
