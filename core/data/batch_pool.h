// The tensors of full batches, lent out and taken back.
#pragma once
#include <cstdint>
#include <vector>

#include "core/data/batch.h"

namespace dtorch {

/**
 * Gives the same few tensors again and again: a batch is free once nobody else holds its tensors or a view of
 * them. One whose shape or gradient a user has changed is dropped. Not thread-safe.
 */
class BatchPool {
 public:
  /** `shape` of the inputs, batch size first. */
  explicit BatchPool(std::vector<std::int64_t> shape) : shape_(std::move(shape)) {}
  /** float32 of that shape and int64 [batch size], with whatever was in them before. */
  Batch take();

 private:
  bool untouched(const Batch& batch) const;

  std::vector<std::int64_t> shape_;
  std::vector<Batch> lent_;
};

}  // namespace dtorch
