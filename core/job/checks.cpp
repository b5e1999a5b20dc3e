// What must hold between keys.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <set>

#include "core/base/address.h"
#include "core/base/endpoint.h"
#include "core/job/fields.h"
#include "core/job/scalar.h"
#include "core/job/validate.h"

namespace dtorch::job {
namespace {

constexpr std::int64_t kImagePixels = 784;  // 28 × 28, of both known datasets
constexpr std::int64_t kImageClasses = 10;
constexpr std::size_t kMostLayers = 1000;

class Checks {
 public:
  Checks(const JobSpec& spec, const Node& root, const Given& given, Problems& problems)
      : spec_(spec), root_(root), given_(given), problems_(problems) {}

  void values() {
    name();
    layers();
    mirrors();
    init_method();
    interface();
  }

  void relations() {
    model();
    dataset();
    optimizer();
    worlds();
    ddp();
    hosts();
  }

 private:
  const Node* node(std::string_view path) const {
    const auto found = given_.find(path);
    return found == given_.end() ? nullptr : found->second;
  }
  /** Whether one of these was refused, so that the spec holds a default in its place: nothing to judge. */
  template <typename... Path>
  bool refused(Path... paths) const {
    const auto one = [&](std::string_view path) {
      const auto found = given_.find(path);
      return found != given_.end() && found->second == nullptr;
    };
    return (one(paths) || ...);
  }

  Place place(std::string_view path) const { return place_of(root_, given_, path); }

  void add(std::string_view path, std::string message, std::string help = {}) {
    problems_.add(place(path), std::move(message), std::move(help));
  }

  void name() {
    const std::size_t length = count_characters(spec_.name);
    if (length >= 1 && length <= 128 && spec_.name.find('/') == std::string::npos) return;
    add("name", fmt::format("'name' must be {}", find_field("name")->key.range));
  }

  void layers() {
    const Node* layers = node("model.layers");
    if (layers == nullptr) return;
    if (layers->items.size() < 2) {
      add("model.layers",
          fmt::format("'model.layers' needs at least 2 widths, input and output, not {}",
                      layers->items.size()),
          "for example [784, 512, 10]");
    } else if (layers->items.size() > kMostLayers) {
      add("model.layers", fmt::format("'model.layers' has {} widths, at most {} are possible",
                                      layers->items.size(), kMostLayers));
    }
  }

  void model() {
    const Node* layers = node("model.layers");
    const std::size_t count = spec_.model.layers.size();
    if (refused("model.layers") || count < 2 || count > kMostLayers) return;
    for (const std::string& type : {spec_.dataset.type, spec_.dataset.fallback}) {
      if (type != "mnist" && type != "fashion_mnist") continue;
      if (!fits_images(type, layers)) return;
    }
  }

  bool fits_images(const std::string& dataset, const Node* layers) {
    const std::int64_t input = spec_.model.layers.front();
    const std::int64_t output = spec_.model.layers.back();
    const auto at = [&](const Node* item) { return item != nullptr ? item->place : place("model.layers"); };
    if (input != kImagePixels) {
      problems_.add(
          at(layers != nullptr ? &layers->items.front() : nullptr),
          fmt::format("the model takes {} inputs, an image of {} has {}", input, dataset, kImagePixels),
          fmt::format("the first of 'model.layers' must be {} (28 x 28 pixels)", kImagePixels));
    }
    if (output != kImageClasses) {
      problems_.add(
          at(layers != nullptr ? &layers->items.back() : nullptr),
          fmt::format("the model has {} outputs, {} has {} classes", output, dataset, kImageClasses),
          fmt::format("the last of 'model.layers' must be {}", kImageClasses));
    }
    return input == kImagePixels && output == kImageClasses;
  }

  void dataset() {
    static constexpr std::array<std::string_view, 4> kFiles{"dataset.train_images", "dataset.train_labels",
                                                            "dataset.test_images", "dataset.test_labels"};
    const DatasetSpec& dataset = spec_.dataset;
    if (dataset.type.empty()) return;
    const bool idx = dataset.type == "idx";
    for (const std::string_view path : kFiles) {
      const Node* file = node(path);
      const bool empty = file == nullptr || file->text.empty();
      if (refused(path)) continue;
      if (idx && empty) {
        add(file == nullptr ? "dataset.type" : path, fmt::format("a dataset of type idx needs '{}'", path),
            "the name of an IDX file, .gz or not");
      } else if (!idx && !empty) {
        add(path, fmt::format("'{}' is only for a dataset of type idx, not {}", path, dataset.type));
      }
    }
    if (idx && dataset.download)
      add("dataset.download", "a dataset of type idx cannot be downloaded", "remove it, or set it to false");
    if (idx && !dataset.mirrors.empty()) add("dataset.mirrors", "a dataset of type idx has no mirrors");
    if (dataset.fallback == dataset.type)
      add("dataset.fallback", "the fallback is the dataset itself", "name another one, or remove it");
  }

  void mirrors() {
    const Node* list = node("dataset.mirrors");
    if (list == nullptr) return;
    for (const Node& item : list->items) {
      const bool url = (item.text.starts_with("http://") && item.text.size() > 7) ||
                       (item.text.starts_with("https://") && item.text.size() > 8);
      if (!url) {
        problems_.add(item.place, fmt::format("mirror '{}' is not an address", shown(item.text)),
                      "it starts with http:// or https://");
      }
    }
  }

  void optimizer() {
    const OptimizerSpec& optimizer = spec_.optimizer;
    if (!optimizer.nesterov) return;
    if (optimizer.momentum == 0 && !refused("optimizer.momentum"))
      add("optimizer.nesterov", "nesterov needs a momentum above 0",
          "set 'optimizer.momentum', for example to 0.9");
    if (optimizer.dampening != 0)
      add("optimizer.nesterov", "nesterov needs dampening 0", "remove 'optimizer.dampening'");
  }

  void ddp() {
    const DdpSpec& ddp = spec_.ddp;
    if (!ddp.shard_optimizer || !(ddp.find_unused_parameters || ddp.static_graph)) return;
    const char* other = ddp.static_graph ? "ddp.static_graph" : "ddp.find_unused_parameters";
    add("ddp.shard_optimizer", "a sharded optimizer updates all parameters at every step, used or not",
        fmt::format("remove '{}' or 'ddp.shard_optimizer'", other));
  }

  void init_method() {
    if (refused("init_method")) return;
    try {
      parse_init_url(spec_.init_method);
    } catch (const Error& error) {
      add("init_method", error.what(), error.help());
    }
  }

  void hosts() {
    const auto& hosts = spec_.nodes.hosts;
    if (hosts.empty() || refused("nodes.hosts")) return;
    const Node* list = node("nodes.hosts");
    std::int64_t slots = 0;
    std::set<std::string> seen;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      slots += hosts[i].slots;
      if (!seen.insert(hosts[i].name).second) {
        problems_.add(list != nullptr ? list->items[i].place : place("nodes.hosts"),
                      fmt::format("host '{}' is named twice", hosts[i].name), "add up its slots");
      }
    }
    if (slots != spec_.world_size && !refused("world_size")) {
      add(node("world_size") != nullptr ? "world_size" : "nodes.hosts",
          fmt::format("'world_size' is {}, the slots of 'nodes.hosts' add up to {}", spec_.world_size, slots),
          fmt::format("set world_size: {}, or change the slots", slots));
    }
    if (hosts.size() < 2 || refused("init_method")) return;
    reachable(node("init_method") != nullptr ? "init_method" : "nodes.hosts");
  }

  /** ?world_size= of init_method says the same thing once more. */
  void worlds() {
    if (refused("init_method") || refused("world_size")) return;
    const std::optional<InitUrl> method = readable_init_method();
    if (!method || !method->world_size || *method->world_size == spec_.world_size) return;
    add("init_method",
        fmt::format("'init_method' says world_size={}, but 'world_size' is {}", *method->world_size,
                    spec_.world_size),
        "leave it out there");
  }

  /** Nothing where init_method() complains. */
  std::optional<InitUrl> readable_init_method() const {
    try {
      return parse_init_url(spec_.init_method);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  /** Several hosts must be able to meet where init_method says; WHERE is to blame if not. */
  void reachable(std::string_view where) {
    const std::optional<InitUrl> method = readable_init_method();
    if (!method) return;
    if (method->scheme == InitScheme::tcp && is_loopback(method->endpoint.host)) {
      add(where, fmt::format("other machines cannot reach {}", method->endpoint.host),
          fmt::format("name the first host in 'init_method': tcp://{}",
                      to_string(Endpoint{spec_.nodes.hosts[0].name, 29500})));
    } else if (method->scheme == InitScheme::tcp && method->endpoint.port == 0) {
      add(where, "several hosts need a fixed port, not 0", "for example 29500");
    } else if (method->scheme == InitScheme::file) {
      add(where, "file:// joins ranks of one machine only", "use tcp:// or shared_filesystem://");
    }
  }

  void interface() {
    const std::string& name = spec_.nodes.interface;
    const bool bad =
        name.size() > 15 || name.find_first_of("/ ") != std::string::npos || name == "." || name == "..";
    if (bad)
      add("nodes.interface", fmt::format("'{}' is not the name of a network interface", shown(name)),
          "see `ip link`: eth0, enp3s0");
  }

  const JobSpec& spec_;
  const Node& root_;
  const Given& given_;
  Problems& problems_;
};

}  // namespace

void check_values(const JobSpec& spec, const Node& root, const Given& given, Problems& problems) {
  Checks(spec, root, given, problems).values();
}

void check_consistency(const JobSpec& spec, const Node& root, const Given& given, Problems& problems) {
  Checks(spec, root, given, problems).relations();
}

}  // namespace dtorch::job
