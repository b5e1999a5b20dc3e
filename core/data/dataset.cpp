#include "core/data/dataset.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/data/catalog.h"
#include "core/data/checksum.h"
#include "core/data/idx.h"
#include "core/data/locate.h"

namespace dtorch {
namespace {

class TensorDataset : public ImageDataset {
 public:
  TensorDataset(at::Tensor images, at::Tensor labels)
      : images_(std::move(images)), labels_(std::move(labels)) {}
  std::int64_t size() const override { return labels_.size(0); }
  const at::Tensor& images() const override { return images_; }
  const at::Tensor& labels() const override { return labels_; }

 private:
  at::Tensor images_;
  at::Tensor labels_;
};

struct Labels {
  explicit Labels(const std::string& path) : file(path, 1), values(file.data_bytes()) { file.read(values); }

  IdxFile file;
  std::vector<std::uint8_t> values;
};

void check_labels(const Labels& labels, std::int64_t classes, std::string_view whose) {
  const auto wrong =
      std::ranges::find_if(labels.values, [&](std::uint8_t label) { return label >= classes; });
  if (wrong == labels.values.end()) return;
  const auto index = static_cast<std::uint64_t>(wrong - labels.values.begin());
  throw Error(
      ErrorKind::data,
      fmt::format("{}: {}: expected a label from 0 to {}, {}, found {} (label {} of {})", labels.file.name(),
                  labels.file.place_of(index), classes - 1, whose, *wrong, index + 1, labels.values.size()));
}

void check_count(const IdxFile& images, const Labels& labels) {
  const auto count = images.shape().front();
  if (count == static_cast<std::int64_t>(labels.values.size())) return;
  throw Error(ErrorKind::data, fmt::format("{} has {} images, {} has {} labels; expected as many of each",
                                           images.name(), count, labels.file.name(), labels.values.size()));
}

std::vector<std::string> first_places(const Labels& labels, std::int64_t classes) {
  std::vector<std::string> places(static_cast<std::size_t>(classes));
  for (std::size_t i = 0; i < labels.values.size(); ++i) {
    if (auto& place = places[labels.values[i]]; place.empty()) place = labels.file.place_of(i);
  }
  return places;
}

void check_known(const DatasetFiles& files, Part part, const IdxFile& images) {
  if (files.known == nullptr) return;
  const auto expected = files.known->file(part).bytes;
  const auto found = images.data_bytes() + 4 * (1 + images.shape().size());
  if (found == expected) return;
  throw Error(ErrorKind::data,
              fmt::format("{}: expected {}'s {} bytes once unpacked, found {} ({})", images.name(),
                          files.known->title, expected, found, fmt::join(images.shape(), " x ")),
              "For data of your own set dataset.type: idx.");
}

/** A dataset whose headers and labels have been read and fit each other; the images wait in their files. */
struct Inspected {
  explicit Inspected(DatasetFiles found)
      : files(std::move(found)),
        train_images(files.path(Part::train_images), 0),
        test_images(files.path(Part::test_images), 0),
        train_labels(files.path(Part::train_labels)),
        test_labels(files.path(Part::test_labels)) {
    check_count(train_images, train_labels);
    check_count(test_images, test_labels);
    check_known(files, Part::train_images, train_images);
    check_known(files, Part::test_images, test_images);
    const auto item = item_shape();
    if (!std::equal(item.begin(), item.end(), test_images.shape().begin() + 1, test_images.shape().end())) {
      throw Error(ErrorKind::data,
                  fmt::format("{} holds items of {}, {} items of {}; expected the same", train_images.name(),
                              fmt::join(item, " x "), test_images.name(),
                              fmt::join(test_images.shape().begin() + 1, test_images.shape().end(), " x ")));
    }
    classes =
        files.known != nullptr ? files.known->classes : *std::ranges::max_element(train_labels.values) + 1;
    check_labels(train_labels, classes, "the dataset's classes");
    check_labels(test_labels, classes, "the classes of the training labels");
  }

  std::vector<std::int64_t> item_shape() const {
    return {train_images.shape().begin() + 1, train_images.shape().end()};
  }

  DatasetFiles files;
  IdxFile train_images;
  IdxFile test_images;
  Labels train_labels;
  Labels test_labels;
  std::int64_t classes = 0;
};

// A gzip file carries its own checksum; a plain one of a known dataset is compared with the published one.
void check_plain_file(const DatasetFiles& files, Part part, const IdxFile& images) {
  if (files.known == nullptr || images.compressed()) return;
  const auto& path = files.path(part);
  const auto& expected = files.known->file(part).contents_md5;
  if (const auto found = md5_of_file(path); found != expected) {
    throw Error(ErrorKind::data,
                fmt::format("{}: expected {}'s MD5 {}, found {}", path, files.known->title, expected, found),
                "The file is damaged or another dataset's: delete it so that it is fetched anew, or set "
                "dataset.type: idx.");
  }
}

at::Tensor read_images(IdxFile& file) {
  auto images = at::empty(file.shape(), at::kByte);
  file.read({images.mutable_data_ptr<std::uint8_t>(), static_cast<std::size_t>(images.numel())});
  return images;
}

at::Tensor to_tensor(const std::vector<std::uint8_t>& labels) {
  auto tensor = at::empty({static_cast<std::int64_t>(labels.size())}, at::kLong);
  std::ranges::copy(labels, tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

}  // namespace

DatasetInfo prepare_dataset(const DatasetSource& source, Catalog catalog) {
  const Inspected data(locate(source, catalog, Access::may_download));
  return {.type = data.files.type,
          .origin = data.files.origin,
          .train_size = data.train_images.shape().front(),
          .test_size = data.test_images.shape().front(),
          .item_shape = data.item_shape(),
          .classes = data.classes,
          .labels_file = data.train_labels.file.name(),
          .label_places = first_places(data.train_labels, data.classes)};
}

std::unique_ptr<ImageDataset> load_dataset(const DatasetSource& source, Split split, Catalog catalog) {
  Inspected data(locate(source, catalog, Access::local_only));
  const bool train = split == Split::train;
  auto& images = train ? data.train_images : data.test_images;
  check_plain_file(data.files, train ? Part::train_images : Part::test_images, images);
  return std::make_unique<TensorDataset>(read_images(images),
                                         to_tensor((train ? data.train_labels : data.test_labels).values));
}

DatasetInfo prepare_dataset(const DatasetSource& source) { return prepare_dataset(source, known_datasets()); }
std::unique_ptr<ImageDataset> load_dataset(const DatasetSource& source, Split split) {
  return load_dataset(source, split, known_datasets());
}

}  // namespace dtorch
