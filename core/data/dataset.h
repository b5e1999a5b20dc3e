// Datasets of images with a class each, kept as bytes until the batch.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace dtorch {

/** Where a dataset comes from; fields as the job spec's `dataset` section (kept apart: data does not know core/job). */
struct DatasetSource {
  std::string type;                  ///< mnist | fashion_mnist | idx
  std::string root;                  ///< folder; empty: data/<type>
  bool download = false;
  std::string fallback;
  std::vector<std::string> mirrors;
  std::string train_images, train_labels, test_images, test_labels;   ///< idx
};

/** Headers only: what pre-flight compares with the model. */
struct DatasetInfo {
  std::string type;                  ///< the one really used
  std::string origin;                ///< folder, for people
  std::int64_t train_size = 0, test_size = 0;
  std::vector<std::int64_t> item_shape;   ///< {28, 28}
  std::int64_t classes = 0;
};

/** A split in memory: uint8 [n, ...item_shape] and int64 [n] labels. Immutable, thread-safe. */
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;
  virtual std::int64_t size() const = 0;
  virtual const at::Tensor& images() const = 0;
  virtual const at::Tensor& labels() const = 0;
};

enum class Split { train, test };

/**
 * Makes sure the files are there and whole enough to read headers: looks in root, then $DTORCH_DATA/<type>, then the places
 * a system package installs it; downloads (one process at a time, resumed, checked) if allowed; else announces and uses the fallback.
 * Throws Error(data) naming file, offset, found and expected; Error(lost) when no mirror answers and there is no fallback.
 */
DatasetInfo prepare_dataset(const DatasetSource& source);
/** Reads one split that prepare_dataset found. */
std::unique_ptr<ImageDataset> load_dataset(const DatasetSource& source, Split split);

}  // namespace dtorch
