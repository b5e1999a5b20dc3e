// One batch of a DataLoader.
#pragma once
#include <ATen/core/Tensor.h>

namespace dtorch {

struct Batch {
  at::Tensor inputs;   ///< float32 [b, ...item_shape] in [0, 1]
  at::Tensor targets;  ///< int64 [b]
};

}  // namespace dtorch
