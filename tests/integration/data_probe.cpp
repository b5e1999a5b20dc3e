// Looks for a dataset as dtorch does, with a catalogue and limits of the test's own, and prints what it found
// as JSON. Usage: data_probe REQUEST.json
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/data/locate.h"

namespace {

using nlohmann::json;

std::vector<dtorch::KnownDataset> catalog_from(const json& list) {
  std::vector<dtorch::KnownDataset> catalog;
  for (const auto& entry : list) {
    dtorch::KnownDataset known;
    known.type = entry.at("type");
    known.title = entry.at("type");
    known.mirrors = entry.at("mirrors");
    known.system_folder = entry.value("system_folder", "");
    known.classes = 10;
    for (std::size_t i = 0; i < known.files.size(); ++i) {
      const auto& file = entry.at("files").at(i);
      known.files[i] = {file.at("name"), file.at("packed_md5"), file.at("contents_md5"), file.at("bytes")};
    }
    catalog.push_back(std::move(known));
  }
  return catalog;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  std::ifstream file(argv[1]);
  const auto request = json::parse(file);
  const auto catalog = catalog_from(request.at("catalog"));
  dtorch::DatasetSource source;
  source.type = request.at("type");
  source.root = request.at("root");
  source.download = true;
  source.fallback = request.value("fallback", "");
  source.mirrors = request.value("mirrors", std::vector<std::string>{});
  dtorch::DownloadLimits limits;
  limits.stall = std::chrono::milliseconds(request.value("stall_ms", 20'000));
  try {
    const auto files = dtorch::locate(source, catalog, dtorch::Access::may_download, limits);
    std::cout << json{{"type", files.type}, {"origin", files.origin}, {"paths", files.paths}} << std::endl;
    return 0;
  } catch (const dtorch::Error& error) {
    std::cout << json{{"kind", dtorch::to_string(error.kind())},
                      {"message", error.what()},
                      {"help", error.help()}}
              << std::endl;
    return 1;
  }
}
