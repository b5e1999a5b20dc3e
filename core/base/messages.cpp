#include "core/base/messages.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace dtorch {
namespace {

using nlohmann::json;

[[noreturn]] void malformed(const char* key, const char* expected, const json& found) {
  throw Error(ErrorKind::lost,
              fmt::format("malformed message: '{}' must be {}, not {}", key, expected,
                          found.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 80)));
}

/** Every double survives: JSON has no NaN (null stands for it) and no infinity ("inf", "-inf"). */
json number(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

/** Reads the members of one message; what is missing keeps its default, what is unknown is left alone. */
class Members {
 public:
  explicit Members(const json& object) : object_(object) {
    if (!object.is_object()) malformed("message", "an object", object);
  }

  void read(const char* key, double& value) const {
    const json* found = find(key);
    if (found == nullptr) return;
    if (found->is_number()) {
      value = found->get<double>();
    } else if (found->is_null()) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (*found == "inf" || *found == "-inf") {
      value = *found == "inf" ? std::numeric_limits<double>::infinity()
                              : -std::numeric_limits<double>::infinity();
    } else {
      malformed(key, "a number, null, \"inf\" or \"-inf\"", *found);
    }
  }

  void read(const char* key, int& value, std::int64_t lowest, std::int64_t highest) const {
    std::int64_t wide = value;
    read(key, wide, lowest, highest);
    value = static_cast<int>(wide);
  }

  void read(const char* key, std::int64_t& value, std::int64_t lowest, std::int64_t highest) const {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_number_integer()) malformed(key, "an integer", *found);
    const bool too_big =
        found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(highest);
    if (too_big || found->get<std::int64_t>() < lowest || found->get<std::int64_t>() > highest) {
      malformed(key, fmt::format("{} to {}", lowest, highest).c_str(), *found);
    }
    value = found->get<std::int64_t>();
  }

  void read(const char* key, std::uint64_t& value) const {
    const json* found = find(key);
    if (found == nullptr) return;
    // nlohmann calls a non-negative literal unsigned, and a value made from an int signed.
    if (!found->is_number_integer() || (!found->is_number_unsigned() && found->get<std::int64_t>() < 0)) {
      malformed(key, "an integer of 0 or more", *found);
    }
    value = found->get<std::uint64_t>();
  }

  void read(const char* key, std::string& value) const {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_string()) malformed(key, "text", *found);
    value = found->get_ref<const std::string&>();
  }

  void read(const char* key, bool& value) const {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) malformed(key, "true or false", *found);
    value = found->get<bool>();
  }

  void read(const char* key, ErrorKind& value) const {
    std::string name(to_string(value));
    read(key, name);
    // A newer peer may know more kinds; what it says is still a failure.
    value = error_kind_from(name).value_or(ErrorKind::training);
  }

  void read_ranks(const char* key, std::vector<int>& value) const {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_array() || found->size() > kMostRanks) malformed(key, "a list of ranks", *found);
    std::vector<int> ranks;
    for (const json& item : *found) {
      const bool rank = item.is_number_integer() && item >= 0 && item <= kMostRanks;
      if (!rank) malformed(key, "a list of ranks", *found);
      ranks.push_back(item.get<int>());
    }
    value = std::move(ranks);
  }

  static constexpr std::int64_t kMostRanks = 1 << 20;

 private:
  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  const json& object_;
};

constexpr std::int64_t kLastSignal = 64;
constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

}  // namespace

Failure to_failure(const Error& error, std::string host) {
  Failure failure;
  failure.kind = error.kind();
  failure.message = error.what();
  failure.help = error.help();
  failure.host = std::move(host);
  return failure;
}

void to_json(json& json, const StepRecord& record) {
  json = {{"type", "step"},
          {"rank", record.rank},
          {"host", record.host},
          {"device", record.device},
          {"epoch", record.epoch},
          {"epochs", record.epochs},
          {"step", record.step},
          {"epoch_step", record.epoch_step},
          {"steps_per_epoch", record.steps_per_epoch},
          {"loss", number(record.loss)},
          {"samples_per_s", number(record.samples_per_s)},
          {"step_ms", number(record.step_ms)},
          {"compute_ms", number(record.compute_ms)},
          {"comm_share", number(record.comm_share)},
          {"data_share", number(record.data_share)},
          {"memory_bytes", record.memory_bytes}};
}

void from_json(const json& json, StepRecord& record) {
  const Members members(json);
  members.read("rank", record.rank, 0, Members::kMostRanks);
  members.read("host", record.host);
  members.read("device", record.device);
  members.read("epoch", record.epoch, 0, kMostInt);
  members.read("epochs", record.epochs, 0, kMostInt);
  members.read("step", record.step, 0, kMost);
  members.read("epoch_step", record.epoch_step, 0, kMost);
  members.read("steps_per_epoch", record.steps_per_epoch, 0, kMost);
  members.read("loss", record.loss);
  members.read("samples_per_s", record.samples_per_s);
  members.read("step_ms", record.step_ms);
  members.read("compute_ms", record.compute_ms);
  members.read("comm_share", record.comm_share);
  members.read("data_share", record.data_share);
  members.read("memory_bytes", record.memory_bytes);
}

void to_json(json& json, const EpochRecord& record) {
  json = {{"type", "epoch"},
          {"epoch", record.epoch},
          {"loss", number(record.loss)},
          {"samples_per_s", number(record.samples_per_s)},
          {"seconds", number(record.seconds)}};
}

void from_json(const json& json, EpochRecord& record) {
  const Members members(json);
  members.read("epoch", record.epoch, 0, kMostInt);
  members.read("loss", record.loss);
  members.read("samples_per_s", record.samples_per_s);
  members.read("seconds", record.seconds);
}

void to_json(json& json, const EvalRecord& record) {
  json = {{"type", "eval"},
          {"epoch", record.epoch},
          {"loss", number(record.loss)},
          {"accuracy", number(record.accuracy)},
          {"samples", record.samples},
          {"seconds", number(record.seconds)}};
}

void from_json(const json& json, EvalRecord& record) {
  const Members members(json);
  members.read("epoch", record.epoch, 0, kMostInt);
  members.read("loss", record.loss);
  members.read("accuracy", record.accuracy);
  members.read("samples", record.samples, 0, kMost);
  members.read("seconds", record.seconds);
}

void to_json(json& json, const ResultRecord& record) {
  json = {{"type", "result"},
          {"test_accuracy", number(record.test_accuracy)},
          {"loss", number(record.loss)},
          {"samples_per_s", number(record.samples_per_s)},
          {"seconds", number(record.seconds)},
          {"world_size", record.world_size},
          {"backend", record.backend},
          {"dataset", record.dataset},
          {"steps", record.steps},
          {"epochs", record.epochs}};
}

void from_json(const json& json, ResultRecord& record) {
  const Members members(json);
  members.read("test_accuracy", record.test_accuracy);
  members.read("loss", record.loss);
  members.read("samples_per_s", record.samples_per_s);
  members.read("seconds", record.seconds);
  members.read("world_size", record.world_size, 0, Members::kMostRanks);
  members.read("backend", record.backend);
  members.read("dataset", record.dataset);
  members.read("steps", record.steps, 0, kMost);
  members.read("epochs", record.epochs, 0, kMostInt);
}

void to_json(json& json, const Failure& failure) {
  json = {{"type", "failure"},
          {"kind", to_string(failure.kind)},
          {"message", failure.message},
          {"help", failure.help},
          {"rank", failure.rank},
          {"host", failure.host},
          {"step", failure.step},
          {"collective", failure.collective},
          {"signal", failure.signal},
          {"exit_code", failure.exit_code},
          {"missing_ranks", failure.missing_ranks},
          {"consequence", failure.consequence}};
}

void from_json(const json& json, Failure& failure) {
  const Members members(json);
  members.read("kind", failure.kind);
  members.read("message", failure.message);
  members.read("help", failure.help);
  members.read("rank", failure.rank, -1, Members::kMostRanks);
  members.read("host", failure.host);
  members.read("step", failure.step, -1, kMost);
  members.read("collective", failure.collective);
  members.read("signal", failure.signal, 0, kLastSignal);  // 128 + signal becomes an exit code
  members.read("exit_code", failure.exit_code, -1, 255);
  members.read_ranks("missing_ranks", failure.missing_ranks);
  members.read("consequence", failure.consequence);
}

}  // namespace dtorch
