#include "core/data/gather.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace dtorch {
namespace {

void to_unit_floats(const std::uint8_t* from, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) / 255.0F;
}

}  // namespace

void gather(const ItemView& items, std::span<const std::int64_t> indices, float* inputs,
            std::int64_t* targets) {
  for (const auto index : indices) {
    if (index < 0 || index >= items.count) {
      throw Error(ErrorKind::usage, fmt::format("index {} of a dataset with {} items", index, items.count));
    }
    to_unit_floats(items.images + static_cast<std::size_t>(index) * items.item_bytes, items.item_bytes,
                   inputs);
    *targets++ = items.labels[index];
    inputs += items.item_bytes;
  }
}

}  // namespace dtorch
