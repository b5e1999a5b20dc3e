// Datasets of images with a class each, kept as bytes until the batch.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace dtorch {

struct KnownDataset;  // core/data/catalog.h

/** Where a dataset comes from; fields as the job spec's `dataset` section (kept apart: data does not know
 * core/job). */
struct DatasetSource {
  std::string type;  ///< mnist | fashion_mnist | idx
  std::string root;  ///< folder; empty: data/<type>
  bool download = false;
  std::string fallback;
  std::vector<std::string> mirrors;
  std::string train_images, train_labels, test_images, test_labels;  ///< idx
};

/** Headers only: what pre-flight compares with the model. */
struct DatasetInfo {
  std::string type;    ///< the one really used
  std::string origin;  ///< folder, for people
  std::int64_t train_size = 0, test_size = 0;
  std::vector<std::int64_t> item_shape;  ///< {28, 28}
  std::int64_t classes = 0;
  std::string labels_file{};  ///< of the training labels
  /** [label]: where the first training item with it stands in labels_file; empty: no item has it. */
  std::vector<std::string> label_places{};
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
 * Makes sure the files are there and fit each other, reading headers and labels only: looks in root, then
 * $DTORCH_DATA/<type>, $DTORCH_DATA and the place a system package installs it; downloads (one process at a
 * time, resumed, checked) if allowed; else announces and uses the fallback. Blocks meanwhile. Throws
 * Error(data) naming file, offset, found and expected, or every place that was tried; Error(lost) when no
 * mirror answers and there is no fallback; Error(spec) for what cannot be.
 */
DatasetInfo prepare_dataset(const DatasetSource& source);
/** Reads one split of what prepare_dataset found (MNIST's training images: about 0.3 s). Downloads and
 * announces nothing. */
std::unique_ptr<ImageDataset> load_dataset(const DatasetSource& source, Split split);

/** The same with other datasets known by name than the built-in ones, for tests. */
DatasetInfo prepare_dataset(const DatasetSource& source, std::span<const KnownDataset> catalog);
std::unique_ptr<ImageDataset> load_dataset(const DatasetSource& source, Split split,
                                           std::span<const KnownDataset> catalog);

}  // namespace dtorch
