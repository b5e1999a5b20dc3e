// The inner loop of a batch: bytes of chosen items, as float32 from 0 to 1. Plain code without tensors or
// threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace dtorch {

/** Items of `item_bytes` bytes each and their labels, one after the other. */
struct ItemView {
  const std::uint8_t* images = nullptr;
  const std::int64_t* labels = nullptr;
  std::int64_t count = 0;
  std::size_t item_bytes = 0;
};

/**
 * For each index, in order: the item's bytes divided by 255 (a true division: torch's x.float().div(255), bit
 * for bit) to `inputs`, its label to `targets`. Throws Error(usage) for an index outside the items, before
 * anything is written for it.
 */
void gather(const ItemView& items, std::span<const std::int64_t> indices, float* inputs,
            std::int64_t* targets);

}  // namespace dtorch
