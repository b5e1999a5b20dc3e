// Finds a dataset's files: on this machine, or from a mirror, or a named fallback's. No libtorch here.
#pragma once
#include <array>
#include <string>

#include "core/data/catalog.h"
#include "core/data/dataset.h"
#include "core/data/download.h"

namespace dtorch {

/** The four files of a dataset that is there. */
struct DatasetFiles {
  std::string type;                     ///< the one found: the fallback's after a fallback
  std::string origin;                   ///< folder, for people
  std::array<std::string, 4> paths;     ///< indexed by Part; plain or .gz
  const KnownDataset* known = nullptr;  ///< null for idx

  const std::string& path(Part part) const { return paths[static_cast<std::size_t>(part)]; }
};

enum class Access {
  may_download,  ///< as the source allows; fallbacks and downloads are announced
  local_only,    ///< what an earlier call has found, without a word
};

/**
 * Looks in root, $DTORCH_DATA/<type>, $DTORCH_DATA and the system package's folder, in that order; then
 * downloads to root; then does the same for the fallback. Known label files are compared with their checksum,
 * so data of one dataset is never taken for another's. May block while it downloads, or while another process
 * does. Throws Error(spec) for an unknown type or an impossible mirror; Error(data) when root's files are
 * another dataset's, or nothing was found (every place is named); Error(lost) when no mirror answers;
 * Error(cannot_create | cannot_write) when root cannot take the download.
 */
DatasetFiles locate(const DatasetSource& source, Catalog catalog, Access access, DownloadLimits limits = {});

}  // namespace dtorch
