#include "core/base/bench_messages.h"

#include <nlohmann/json.hpp>

namespace dtorch {
namespace {

using nlohmann::json;

// The members of each message, listed once for both directions. Struct is const where it is written to JSON.

template <typename Struct, typename Visit>
void visit_request(Struct& request, const Visit& visit) {
  visit("operations", request.operations);
  visit("backends", request.backends);
  visit("sizes", request.sizes);
  visit("dtype", request.type);
  visit("reduction", request.reduction);
  visit("root", request.root);
  visit("iterations", request.iterations);
  visit("warmup", request.warmup);
  visit("checks", request.checks);
  visit("backend_memory", request.backend_memory);
  visit("world_size", request.world_size);
  visit("init_method", request.init_method);
  visit("interface", request.interface);
  visit("rendezvous_ms", request.rendezvous_ms);
  visit("collective_ms", request.collective_ms);
}

template <typename Struct, typename Visit>
void visit_times(Struct& times, const Visit& visit) {
  visit("min_us", times.min_us);
  visit("p50_us", times.p50_us);
  visit("p99_us", times.p99_us);
  visit("max_us", times.max_us);
  visit("skew_us", times.skew_us);
  visit("slowest_rank", times.slowest_rank);
  visit("wrong", times.wrong);
}

template <typename Struct, typename Visit>
void visit_row(Struct& row, const Visit& visit) {
  visit("operation", row.operation);
  visit("backend", row.backend);
  visit("bytes", row.bytes);
  visit("elements", row.elements);
  visit("dtype", row.type);
  visit("reduction", row.reduction);
  visit("root", row.root);
  visit("world_size", row.world_size);
  visit("iterations", row.iterations);
  visit("note", row.note);
  visit("out_of_place", row.out_of_place);
  visit("in_place", row.in_place);
}

template <typename Struct, typename Visit>
void visit_start(Struct& start, const Visit& visit) {
  visit("memcpy_gb_s", start.memcpy_gb_s);
  visit("hosts", start.hosts);
}

struct Writer {
  json& object;
  template <typename T>
  void operator()(const char* key, const T& value) const {
    object[key] = value;
  }
  template <typename T>
  void operator()(const char* key, const std::optional<T>& value) const {
    object[key] = value ? json(*value) : json();
  }
};

struct Reader {
  const json& object;
  template <typename T>
  void operator()(const char* key, T& value) const {
    object.at(key).get_to(value);
  }
  template <typename T>
  void operator()(const char* key, std::optional<T>& value) const {
    const json& member = object.at(key);
    value = member.is_null() ? std::optional<T>() : member.get<T>();
  }
};

}  // namespace

const std::vector<std::string>& bench_operations() {
  static const std::vector<std::string> names{"allreduce", "allgather", "reducescatter", "broadcast",
                                              "reduce",    "alltoall",  "gather",        "scatter",
                                              "sendrecv",  "barrier"};
  return names;
}

void to_json(json& object, const BenchRequest& request) { visit_request(request, Writer{object}); }
void from_json(const json& object, BenchRequest& request) { visit_request(request, Reader{object}); }
void to_json(json& object, const BenchTimes& times) { visit_times(times, Writer{object}); }
void from_json(const json& object, BenchTimes& times) { visit_times(times, Reader{object}); }
void to_json(json& object, const BenchRow& row) { visit_row(row, Writer{object}); }
void from_json(const json& object, BenchRow& row) { visit_row(row, Reader{object}); }
void to_json(json& object, const BenchStart& start) { visit_start(start, Writer{object}); }
void from_json(const json& object, BenchStart& start) { visit_start(start, Reader{object}); }

}  // namespace dtorch
