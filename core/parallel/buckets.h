// Which gradients travel together: the plan of buckets, the same on every rank. Plain arithmetic, no tensors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dtorch {

/** What the plan needs to know of one gradient. Gradients of different kinds (dtype, device) never share a
 * bucket. */
struct GradientShape {
  std::int64_t elements = 0;
  std::int64_t element_size = 0;  ///< bytes
  int kind = 0;
};

/** One bucket: a flat tensor in which every gradient has a slice that starts on a cache line. */
struct BucketPlan {
  std::vector<std::size_t> parameters;  ///< indices into the shapes given, last parameter first
  std::vector<std::int64_t> offsets;    ///< of each slice, in elements
  std::int64_t elements = 0;            ///< of the flat tensor, padding included
};

/**
 * Fills buckets in the reverse of the order given, which is about the order in which backward() makes
 * gradients. A bucket closes once it holds `cap` bytes (of each kind the first one `first_cap`, so that
 * communication starts early); a gradient is never split. Buckets come in the order in which they fill. Every
 * index is in exactly one bucket.
 */
std::vector<BucketPlan> plan_buckets(std::span<const GradientShape> shapes, std::int64_t first_cap,
                                     std::int64_t cap);

}  // namespace dtorch
