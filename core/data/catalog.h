// The datasets known by name: what their files are called, where they come from, and how to tell that they
// are right.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dtorch {

/** Which of a dataset's four files. */
enum class Part { train_images, train_labels, test_images, test_labels };
inline constexpr std::array kParts{Part::train_images, Part::train_labels, Part::test_images,
                                   Part::test_labels};

struct KnownFile {
  std::string name;          ///< unpacked; the published one adds .gz
  std::string packed_md5;    ///< of the published .gz
  std::string contents_md5;  ///< of what is inside, for files that somebody packed anew
  std::uint64_t bytes = 0;   ///< unpacked
};

struct KnownDataset {
  std::string type;                     ///< "mnist", as dataset.type names it
  std::string title;                    ///< "MNIST"
  std::array<KnownFile, 4> files;       ///< indexed by Part
  std::vector<std::string> mirrors;     ///< base URLs, tried in order
  std::vector<std::string> subfolders;  ///< where other programs put the files below a data folder
  std::string system_folder;            ///< where a distribution's package installs it; empty: there is none
  std::int64_t classes = 0;

  const KnownFile& file(Part part) const { return files[static_cast<std::size_t>(part)]; }
};

using Catalog = std::span<const KnownDataset>;

/** The built-in ones. */
Catalog known_datasets();
/** The dataset of that type, or null. */
const KnownDataset* find_known(Catalog catalog, const std::string& type);

}  // namespace dtorch
