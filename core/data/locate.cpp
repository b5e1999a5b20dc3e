#include "core/data/locate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/data/checksum.h"
#include "core/data/folder_lock.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr std::uint64_t kPackingOverhead = 1 << 20;  // a .gz is not larger than its contents by more
constexpr auto kLockPatience = 10min;

std::string known_types(Catalog catalog) {
  std::string names;
  for (const auto& known : catalog) names += known.type + ", ";
  return names + "idx";
}

// The file itself, else its .gz: what is unpacked already loads faster. Empty if neither is there.
std::string existing(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  for (const auto& file : {folder / name, folder / (name + ".gz")}) {
    if (fs::is_regular_file(file, ignored)) return file.string();
  }
  return {};
}

// How a folder answers the question for a dataset.
struct Place {
  std::optional<DatasetFiles> files;
  std::string reason;    // why not
  bool foreign = false;  // it has such files, but another dataset's
};

Place look_in_folder(const KnownDataset& known, const fs::path& folder) {
  DatasetFiles files{.type = known.type, .origin = folder.string(), .paths = {}, .known = &known};
  std::vector<std::string> missing;
  for (const auto part : kParts) {
    auto& path = files.paths[static_cast<std::size_t>(part)];
    path = existing(folder, known.file(part).name);
    if (path.empty()) missing.push_back(known.file(part).name);
  }
  if (missing.size() == kParts.size()) {
    std::error_code ignored;
    return {{}, fs::is_directory(folder, ignored) ? "none of its files there" : "no such folder"};
  }
  if (!missing.empty()) return {{}, fmt::format("{} missing", fmt::join(missing, ", "))};
  for (const auto part : {Part::train_labels, Part::test_labels}) {
    const auto found = md5_of_contents(files.path(part), known.file(part).bytes);
    const auto& expected = known.file(part).contents_md5;
    if (found != expected) {
      return {{},
              fmt::format("{} is not {}'s: expected contents with MD5 {}, found {}", files.path(part),
                          known.title, expected, found),
              true};
    }
  }
  return {std::move(files), {}};
}

Place look_in(const KnownDataset& known, const fs::path& folder) {
  auto first = look_in_folder(known, folder);
  if (first.files || first.foreign) return first;
  for (const auto& subfolder : known.subfolders) {
    auto place = look_in_folder(known, folder / subfolder);
    if (place.files) return place;
  }
  return first;
}

std::string root_of(const DatasetSource& source) {
  return source.root.empty() ? "data/" + source.type : source.root;
}

// Folders outside root.
std::vector<std::string> shared_folders(const KnownDataset& known) {
  std::vector<std::string> folders;
  if (const char* data = std::getenv("DTORCH_DATA"); data != nullptr && *data != '\0') {
    folders.push_back((fs::path(data) / known.type).string());
    folders.emplace_back(data);
  }
  if (!known.system_folder.empty()) folders.push_back(known.system_folder);
  return folders;
}

// Empty, or what is wrong with a downloaded file. Somebody may have packed the right contents anew.
std::string download_fault(const KnownFile& file, const std::string& path) {
  const auto packed = md5_of_file(path);
  if (packed == file.packed_md5) return {};
  std::string inside;
  try {
    inside = md5_of_contents(path, file.bytes);
  } catch (const Error& error) {
    inside = error.what();
  }
  if (inside == file.contents_md5) return {};
  return fmt::format("expected MD5 {} (contents {}), found {} (contents {})", file.packed_md5,
                     file.contents_md5, packed, inside);
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored)) bytes += entry.file_size(ignored);
  }
  return bytes;
}

std::vector<std::string> urls_for(const KnownFile& file, const std::vector<std::string>& mirrors) {
  std::vector<std::string> urls;
  for (const auto& mirror : mirrors)
    urls.push_back(mirror + (mirror.ends_with('/') ? "" : "/") + file.name + ".gz");
  return urls;
}

DatasetFiles download(const KnownDataset& known, const DatasetSource& source, DownloadLimits limits) {
  const fs::path root = root_of(source);
  std::error_code error;
  fs::create_directories(root, error);
  if (error) {
    throw Error(ErrorKind::cannot_create, fmt::format("{}: {}", root.string(), error.message()),
                "Set dataset.root to a folder that can be written.");
  }
  const FolderLock lock(
      root.string(), fmt::format("is downloading {} to {}", known.title, root.string()),
      [&] { return bytes_in(root); }, kLockPatience);
  Downloader downloader(limits);
  for (const auto& file : known.files) {
    if (!existing(root, file.name).empty())
      continue;  // kept from before, or another process has just brought it
    log_info(fmt::format("{}: downloading {}.gz to {}", known.title, file.name, root.string()));
    downloader.fetch({.urls = urls_for(file, source.mirrors.empty() ? known.mirrors : source.mirrors),
                      .path = (root / (file.name + ".gz")).string(),
                      .title = known.title + " " + file.name + ".gz",
                      .max_bytes = file.bytes + kPackingOverhead,
                      .fault = [&](const std::string& path) { return download_fault(file, path); }});
  }
  auto place = look_in(known, root);
  if (!place.files) throw Error(ErrorKind::data, fmt::format("{}: {}", root.string(), place.reason));
  return std::move(*place.files);
}

DatasetFiles locate_idx(const DatasetSource& source) {
  DatasetFiles files{
      .type = "idx", .origin = source.root.empty() ? "." : source.root, .paths = {}, .known = nullptr};
  const std::array<std::pair<const char*, const std::string*>, 4> given{
      {{"train_images", &source.train_images},
       {"train_labels", &source.train_labels},
       {"test_images", &source.test_images},
       {"test_labels", &source.test_labels}}};
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& [key, path] = given[i];
    if (path->empty()) {
      throw Error(ErrorKind::spec, fmt::format("dataset.{} is missing: type idx needs all four files", key));
    }
    files.paths[i] = (fs::path(source.root) / *path).string();
  }
  return files;
}

void check_mirrors(const DatasetSource& source) {
  for (const auto& mirror : source.mirrors) {
    if (!is_download_url(mirror)) {
      throw Error(
          ErrorKind::spec,
          fmt::format("dataset.mirrors: expected a URL that starts with http:// or https://, found '{}'",
                      mirror));
    }
  }
}

// What was tried in vain, for the error's message.
struct Tried {
  std::string list;
  void add(const std::string& where, const std::string& reason) {
    list += fmt::format("\n  {}: {}", where, reason);
  }
};

void announce_fallback(const KnownDataset& known, const std::string& fallback, const Tried& tried) {
  log_warning(
      fmt::format("no {} here: using {} instead, as dataset.fallback says. Tried:", known.title, fallback));
  std::istringstream lines(tried.list);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) log_warning(line);
  }
}

std::optional<DatasetFiles> find_locally(const KnownDataset& known, const DatasetSource& source,
                                         Tried& tried) {
  const auto root = root_of(source);
  auto place = look_in(known, root);
  if (place.files) return std::move(place.files);
  if (place.foreign) {
    throw Error(ErrorKind::data, place.reason,
                "For data of your own set dataset.type: idx; otherwise set dataset.root to another folder, "
                "or move these files away.");
  }
  tried.add(root, place.reason);
  for (const auto& folder : shared_folders(known)) {
    place = look_in(known, folder);
    if (place.files) return std::move(place.files);
    tried.add(folder, place.reason);
  }
  return std::nullopt;
}

std::optional<DatasetFiles> try_download(const KnownDataset& known, const DatasetSource& source,
                                         DownloadLimits limits, Tried& tried, ErrorKind& kind) {
  try {
    return download(known, source, limits);
  } catch (const Error& error) {
    // Another source may help against these; a full disk or a folder that cannot be written is the user's to
    // know.
    if (error.kind() != ErrorKind::lost && error.kind() != ErrorKind::data) throw;
    kind = error.kind();
    tried.add("download", error.what() + (error.help().empty() ? "" : " (" + error.help() + ")"));
    return std::nullopt;
  }
}

}  // namespace

DatasetFiles locate(const DatasetSource& source, Catalog catalog, Access access, DownloadLimits limits) {
  if (source.type == "idx") return locate_idx(source);
  const auto* known = find_known(catalog, source.type);
  if (known == nullptr) {
    throw Error(ErrorKind::spec, fmt::format("unknown dataset type '{}'; expected one of {}", source.type,
                                             known_types(catalog)));
  }
  check_mirrors(source);
  Tried tried;
  auto kind = ErrorKind::data;
  if (auto files = find_locally(*known, source, tried)) return std::move(*files);
  if (source.download && access == Access::may_download) {
    if (auto files = try_download(*known, source, limits, tried, kind)) return std::move(*files);
  }
  if (!source.fallback.empty() && source.fallback != source.type) {
    if (access == Access::may_download) announce_fallback(*known, source.fallback, tried);
    DatasetSource other;
    other.type = source.fallback;
    other.download = source.download;
    return locate(other, catalog, access, limits);
  }
  throw Error(kind, fmt::format("{} was not found. Tried:{}", known->title, tried.list),
              source.download
                  ? "Check the network or the proxy (https_proxy), or put the files into dataset.root or "
                    "$DTORCH_DATA by hand."
                  : "Set dataset.download: true, or put the files into dataset.root or $DTORCH_DATA.");
}

}  // namespace dtorch
