#include "core/data/catalog.h"

#include <algorithm>

namespace dtorch {
namespace {

constexpr std::uint64_t kTrainImages = 16 + 60'000 * 28 * 28;
constexpr std::uint64_t kTestImages = 16 + 10'000 * 28 * 28;
constexpr std::uint64_t kTrainLabels = 8 + 60'000;
constexpr std::uint64_t kTestLabels = 8 + 10'000;

std::vector<KnownDataset> make_catalog() {
  const KnownDataset mnist{.type = "mnist",
                           .title = "MNIST",
                           .files = {{{"train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                                       "6bbc9ace898e44ae57da46a324031adb", kTrainImages},
                                      {"train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432",
                                       "a25bea736e30d166cdddb491f175f624", kTrainLabels},
                                      {"t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3",
                                       "2646ac647ad5339dbf082846283269ea", kTestImages},
                                      {"t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c",
                                       "27ae3e4e09519cfbb04c329615203637", kTestLabels}}},
                           .mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                                       "https://storage.googleapis.com/cvdf-datasets/mnist/",
                                       "https://raw.githubusercontent.com/fgnt/mnist/master/",
                                       "http://yann.lecun.com/exdb/mnist/"},
                           .subfolders = {"MNIST/raw"},
                           .system_folder = "",
                           .classes = 10};
  const KnownDataset fashion_mnist{
      .type = "fashion_mnist",
      .title = "Fashion-MNIST",
      .files = {{{"train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                  "f4a8712d7a061bf5bd6d2ca38dc4d50a", kTrainImages},
                 {"train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe",
                  "9018921c3c673c538a1fc5bad174d6f9", kTrainLabels},
                 {"t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79",
                  "8181f5470baa50b63fa0f6fddb340f0a", kTestImages},
                 {"t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310",
                  "15d484375f8d13e6eb1aabb0c3f46965", kTestLabels}}},
      .mirrors = {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                  "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
                  "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"},
      .subfolders = {"FashionMNIST/raw"},
      .system_folder = "/usr/share/datasets/fashion-mnist",
      .classes = 10};
  return {mnist, fashion_mnist};
}

}  // namespace

Catalog known_datasets() {
  static const std::vector<KnownDataset> catalog = make_catalog();
  return catalog;
}

const KnownDataset* find_known(Catalog catalog, const std::string& type) {
  const auto found = std::ranges::find(catalog, type, &KnownDataset::type);
  return found == catalog.end() ? nullptr : &*found;
}

}  // namespace dtorch
