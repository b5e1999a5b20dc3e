// Batches ahead of need.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/data/dataset.h"

namespace dtorch {

struct Batch;  // core/data/batch.h: {at::Tensor inputs; at::Tensor targets;}

struct DataLoaderOptions {
  std::int64_t batch_size = 64;
  int workers =
      1;  ///< threads that prepare batches ahead; 0: on the caller's thread. Order never depends on it.
  bool drop_last = false;  ///< leave out a last short batch
};

/**
 * Gathers uint8 images by index, converts to float32 divided by 255 (as torchvision's ToTensor) in one go.
 * start() begins an epoch over the given indices; next() gives its batches in order and nothing at the end.
 * A fault in a worker is rethrown by next(). Not thread-safe.
 */
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const ImageDataset> dataset, DataLoaderOptions options);
  ~DataLoader();
  void start(std::vector<std::int64_t> indices);
  std::optional<Batch> next();
  /** Batches of an epoch over that many indices. */
  std::int64_t batches(std::int64_t indices) const;
  /** Time next() has blocked since construction. */
  std::chrono::nanoseconds time_waiting() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtorch
