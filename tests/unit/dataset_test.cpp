#include "core/data/dataset.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/log.h"
#include "core/data/catalog.h"
#include "core/data/checksum.h"
#include "tests/unit/data_files.h"

namespace dtorch {
namespace {

using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::idx_images;
using testing::idx_labels;
using ::testing::IsEmpty;
using testing::message_of;
using testing::pixel;
using testing::TempFolder;
using testing::write_file;

std::string md5(const std::string& bytes) {
  return md5_of({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

// Two datasets whose files have the same names and sizes and differ in their labels, as MNIST and
// Fashion-MNIST do.
class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    catalog_ = {known("tiny", {1, 0, 2}, folder_ / "system-tiny"),
                known("other", {2, 2, 1}, folder_ / "system-other")};
    ::setenv("DTORCH_DATA", (folder_ / "nowhere").c_str(), 1);
    ::setenv("no_proxy", "*", 1);
    set_log_sink([this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  ~DatasetTest() override {
    set_log_sink({});
    ::unsetenv("DTORCH_DATA");
  }

  static std::array<std::string, 4> contents(const std::vector<std::uint8_t>& train_labels) {
    return {idx_images({3, 4, 5}), idx_labels(train_labels), idx_images({2, 4, 5}), idx_labels({0, 1})};
  }

  static KnownDataset known(const std::string& type, const std::vector<std::uint8_t>& train_labels,
                            const std::string& system) {
    KnownDataset dataset{.type = type,
                         .title = "The " + type,
                         .files = {},
                         .mirrors = {},
                         .subfolders = {"Torch/raw"},
                         .system_folder = system,
                         .classes = 3};
    const std::array<std::string, 4> names{"train-images", "train-labels", "t10k-images", "t10k-labels"};
    const auto bytes = contents(train_labels);
    for (std::size_t i = 0; i < 4; ++i)
      dataset.files[i] = {names[i], md5(gzip(bytes[i])), md5(bytes[i]), bytes[i].size()};
    return dataset;
  }

  // The files of catalog_[which] in a folder.
  void install(std::size_t which, const std::string& folder, bool packed = true) const {
    const auto bytes =
        contents(which == 0 ? std::vector<std::uint8_t>{1, 0, 2} : std::vector<std::uint8_t>{2, 2, 1});
    for (std::size_t i = 0; i < 4; ++i) {
      write_file(folder + "/" + catalog_[which].files[i].name + (packed ? ".gz" : ""),
                 packed ? gzip(bytes[i]) : bytes[i]);
    }
  }

  DatasetSource source(const std::string& type = "tiny") const {
    DatasetSource from;
    from.type = type;
    from.root = folder_ / "root";
    return from;
  }

  TempFolder folder_;
  std::vector<KnownDataset> catalog_;
  std::string log_;
};

TEST_F(DatasetTest, FindsAndReadsTheFilesInRoot) {
  for (const bool packed : {true, false}) {
    install(0, folder_ / "root", packed);
    const auto info = prepare_dataset(source(), catalog_);
    EXPECT_EQ(info.type, "tiny");
    EXPECT_EQ(info.origin, folder_ / "root");
    EXPECT_EQ(info.train_size, 3);
    EXPECT_EQ(info.test_size, 2);
    EXPECT_THAT(info.item_shape, ElementsAre(4, 5));
    EXPECT_EQ(info.classes, 3);
    const auto train = load_dataset(source(), Split::train, catalog_);
    EXPECT_EQ(train->size(), 3);
    EXPECT_TRUE(at::equal(train->labels(), at::tensor({1, 0, 2}, at::kLong)));
    EXPECT_EQ(train->images().sizes(), (std::vector<std::int64_t>{3, 4, 5}));
    for (std::size_t i = 0; i < 60; ++i)
      ASSERT_EQ(train->images().const_data_ptr<std::uint8_t>()[i], pixel(i));
    EXPECT_EQ(load_dataset(source(), Split::test, catalog_)->size(), 2);
  }
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(DatasetTest, LooksInTheFoldersInOrder) {
  const auto origin = [&] { return prepare_dataset(source(), catalog_).origin; };
  install(0, folder_ / "system-tiny");
  EXPECT_EQ(origin(), folder_ / "system-tiny");
  install(0, folder_ / "shared");
  ::setenv("DTORCH_DATA", (folder_ / "shared").c_str(), 1);
  EXPECT_EQ(origin(), folder_ / "shared");
  install(0, folder_ / "shared/tiny");
  EXPECT_EQ(origin(), folder_ / "shared/tiny");
  install(0, folder_ / "root/Torch/raw");
  EXPECT_EQ(origin(), folder_ / "root/Torch/raw") << "where torchvision leaves them";
  install(0, folder_ / "root");
  EXPECT_EQ(origin(), folder_ / "root");
}

TEST_F(DatasetTest, NeverTakesOneDatasetForAnother) {
  install(1, folder_ / "shared");
  ::setenv("DTORCH_DATA", (folder_ / "shared").c_str(), 1);
  EXPECT_THAT(message_of(ErrorKind::data, [&] { prepare_dataset(source(), catalog_); }),
              HasSubstr("train-labels.gz is not The tiny's: expected contents with MD5 " +
                        catalog_[0].files[1].contents_md5 + ", found " + catalog_[1].files[1].contents_md5));
  install(0, folder_ / "system-tiny");
  EXPECT_EQ(prepare_dataset(source(), catalog_).origin, folder_ / "system-tiny")
      << "goes on where it is only a place to look";
  install(1, folder_ / "root");
  EXPECT_THAT(message_of(ErrorKind::data, [&] { prepare_dataset(source(), catalog_); }),
              HasSubstr("root/train-labels.gz is not The tiny's"))
      << "in the folder that the user named it is an error";
}

TEST_F(DatasetTest, ListsEveryPlaceItTried) {
  install(0, folder_ / "root");
  std::filesystem::remove(folder_ / "root/t10k-images.gz");
  const auto message = message_of(ErrorKind::data, [&] { prepare_dataset(source(), catalog_); });
  EXPECT_THAT(message, HasSubstr("The tiny was not found. Tried:"));
  EXPECT_THAT(message, HasSubstr("root: t10k-images missing"));
  EXPECT_THAT(message, HasSubstr("nowhere/tiny: no such folder"));
  EXPECT_THAT(message, HasSubstr("nowhere: no such folder"));
  EXPECT_THAT(message, HasSubstr("system-tiny: no such folder"));
}

TEST_F(DatasetTest, AnnouncesAFallback) {
  install(1, folder_ / "system-other");
  auto from = source();
  from.fallback = "other";
  const auto info = prepare_dataset(from, catalog_);
  EXPECT_EQ(info.type, "other");
  EXPECT_EQ(info.origin, folder_ / "system-other");
  EXPECT_THAT(log_, HasSubstr("no The tiny here: using other instead, as dataset.fallback says. Tried:"));
  EXPECT_THAT(log_, HasSubstr("root: no such folder"));
  log_.clear();
  EXPECT_TRUE(
      at::equal(load_dataset(from, Split::train, catalog_)->labels(), at::tensor({2, 2, 1}, at::kLong)));
  EXPECT_THAT(log_, IsEmpty()) << "said once is enough";
}

TEST_F(DatasetTest, FallsBackQuicklyWithoutANetwork) {
  install(1, folder_ / "system-other");
  auto from = source();
  from.fallback = "other";
  from.download = true;
  // The first refuses; the names cannot exist (RFC 2606).
  from.mirrors = {"http://127.0.0.1:1/", "http://mirror.invalid/", "https://other.invalid/mnist"};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(prepare_dataset(from, catalog_).type, "other");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_THAT(log_, HasSubstr("http://127.0.0.1:1/train-images.gz: "));
  EXPECT_THAT(log_, HasSubstr("http://mirror.invalid/train-images.gz: "));
  EXPECT_THAT(log_, HasSubstr("https://other.invalid/mnist/train-images.gz: "));
  from.fallback.clear();
  EXPECT_THAT(message_of(ErrorKind::lost, [&] { prepare_dataset(from, catalog_); }),
              HasSubstr("mirror.invalid"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "root/train-images.gz.part"));
}

TEST_F(DatasetTest, ADamagedPlainImageFileIsNotTrainedOn) {
  install(0, folder_ / "root", false);
  auto bytes = idx_images({3, 4, 5});
  bytes[40] = static_cast<char>(bytes[40] ^ 1);
  write_file(folder_ / "root/train-images", bytes);
  EXPECT_THAT(message_of(ErrorKind::data, [&] { load_dataset(source(), Split::train, catalog_); }),
              HasSubstr("train-images: expected The tiny's MD5"));
  EXPECT_EQ(load_dataset(source(), Split::test, catalog_)->size(), 2);
}

TEST_F(DatasetTest, ADamagedPackedImageFileIsNotTrainedOn) {
  install(0, folder_ / "root");
  auto bytes = gzip(idx_images({3, 4, 5}));
  bytes[bytes.size() - 7] = static_cast<char>(bytes[bytes.size() - 7] ^ 1);
  write_file(folder_ / "root/train-images.gz", bytes);
  EXPECT_EQ(prepare_dataset(source(), catalog_).train_size, 3) << "reads headers only";
  EXPECT_THAT(message_of(ErrorKind::data, [&] { load_dataset(source(), Split::train, catalog_); }),
              HasSubstr("checksum is wrong"));
}

TEST_F(DatasetTest, RefusesUnknownTypesAndMirrors) {
  EXPECT_THAT(message_of(ErrorKind::spec, [&] { prepare_dataset(source("cifar"), catalog_); }),
              HasSubstr("unknown dataset type 'cifar'; expected one of tiny, other, idx"));
  for (const auto* mirror : {"ftp://host/", "file:///etc", "host/path", ""}) {
    auto from = source();
    from.download = true;
    from.mirrors = {mirror};
    EXPECT_THAT(message_of(ErrorKind::spec, [&] { prepare_dataset(from, catalog_); }),
                HasSubstr("http:// or https://"));
  }
}

class IdxDatasetTest : public DatasetTest {
 protected:
  DatasetSource source_of(const std::array<std::string, 4>& bytes) {
    const std::array<std::string, 4> names{"a", "b.gz", "c", "d"};
    for (std::size_t i = 0; i < 4; ++i) write_file(folder_ / "root/" + names[i], bytes[i]);
    auto from = source("idx");
    from.train_images = "a";
    from.train_labels = folder_ / "root/b.gz";
    from.test_images = "c";
    from.test_labels = "d";
    return from;
  }
  std::string fault(const std::array<std::string, 4>& bytes) {
    return message_of(ErrorKind::data, [&] { prepare_dataset(source_of(bytes)); });
  }
};

TEST_F(IdxDatasetTest, TakesFourFilesAndCountsClassesOfTheTrainingLabels) {
  const auto from = source_of(
      {idx_images({4, 6}), gzip(idx_labels({0, 6, 1, 1})), gzip(idx_images({1, 6})), idx_labels({5})});
  const auto info = prepare_dataset(from);
  EXPECT_EQ(info.type, "idx");
  EXPECT_EQ(info.classes, 7);
  EXPECT_EQ(info.labels_file, folder_ / "root/b.gz");
  EXPECT_THAT(info.label_places,
              ElementsAre("unpacked offset 8", "unpacked offset 10", "", "", "", "", "unpacked offset 9"));
  EXPECT_THAT(info.item_shape, ElementsAre(6));
  EXPECT_TRUE(at::equal(load_dataset(from, Split::test)->labels(), at::tensor({5}, at::kLong)));
  EXPECT_EQ(load_dataset(from, Split::train)->images().sizes(), (std::vector<std::int64_t>{4, 6}));
}

TEST_F(IdxDatasetTest, FilesMustFitEachOther) {
  EXPECT_THAT(fault({idx_images({4, 6}), idx_labels({0, 1, 1}), idx_images({1, 6}), idx_labels({0})}),
              HasSubstr("a has 4 images, " + (folder_ / "root/b.gz") + " has 3 labels"));
  EXPECT_THAT(fault({idx_images({2, 6}), idx_labels({0, 1}), idx_images({1, 7}), idx_labels({0})}),
              HasSubstr("a holds items of 6, " + (folder_ / "root/c") + " items of 7"));
  EXPECT_THAT(
      fault({idx_images({2, 6}), idx_labels({0, 1}), idx_images({3, 6}), idx_labels({0, 1, 2})}),
      HasSubstr("d: offset 10: expected a label from 0 to 1, the classes of the training labels, found 2 "
                "(label 3 of 3)"));
  EXPECT_THAT(fault({idx_labels({0, 1}), idx_labels({0, 1}), idx_images({3, 6}), idx_labels({0, 1, 1})}),
              HasSubstr("dimensions, found 1"));
}

TEST_F(IdxDatasetTest, NamesAMissingFileOrKey) {
  auto from = source_of({idx_images({1, 6}), idx_labels({0}), idx_images({1, 6}), idx_labels({0})});
  from.test_images = "none";
  EXPECT_THAT(message_of(ErrorKind::data, [&] { prepare_dataset(from); }),
              HasSubstr("root/none: open: No such file or directory"));
  from.test_labels.clear();
  EXPECT_THAT(message_of(ErrorKind::spec, [&] { prepare_dataset(from); }),
              HasSubstr("dataset.test_labels is missing"));
}

TEST(CatalogTest, KnowsTheTutorialsDatasets) {
  for (const auto* type : {"mnist", "fashion_mnist"}) {
    const auto* known = find_known(known_datasets(), type);
    ASSERT_NE(known, nullptr) << type;
    EXPECT_GE(known->mirrors.size(), 3U);
    EXPECT_EQ(known->classes, 10);
    for (const auto& file : known->files) {
      EXPECT_EQ(file.packed_md5.size(), 32U);
      EXPECT_EQ(file.contents_md5.size(), 32U);
    }
  }
  EXPECT_EQ(find_known(known_datasets(), "idx"), nullptr);
}

}  // namespace
}  // namespace dtorch
