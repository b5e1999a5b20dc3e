// Files over HTTP, whole and right or not at all.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace dtorch {

class HttpTransfer;  // core/data/transfer.h

struct DownloadLimits {
  std::chrono::milliseconds connect{3'000};  ///< one mirror, name look-up included
  std::chrono::milliseconds connect_total{
      8'000};                               ///< spent on mirrors that do not answer, all files together
  std::chrono::milliseconds stall{20'000};  ///< without a byte
};

struct DownloadRequest {
  std::vector<std::string> urls;  ///< http or https, tried in order
  std::string path;   ///< where the file goes; PATH.part grows meanwhile and is gone on with by the next call
  std::string title;  ///< for progress and messages: "MNIST train-images-idx3-ubyte.gz"
  std::uint64_t max_bytes = 0;  ///< a longer answer is refused
  /** Whether the file at that path is the one wanted: empty, or what was expected and found. */
  std::function<std::string(const std::string& path)> fault;
};

/** Whether a URL is one that a Downloader takes. */
bool is_download_url(const std::string& url);

/**
 * Downloads files one after the other. A cut transfer is resumed where it broke off, from the same mirror and
 * after a restart of the program too; one that turns out wrong is deleted, and the next mirror is tried. The
 * file appears under its name only when it is whole, right and on disk. Progress goes to log_info, once a
 * second at most. Callers keep two processes from doing it at once (FolderLock). Not thread-safe.
 */
class Downloader {
 public:
  explicit Downloader(DownloadLimits limits = {});
  ~Downloader();
  /**
   * Blocks. Throws Error(lost) when no mirror has it, Error(data) when all that came was wrong, each naming
   * every mirror and what was the matter; Error(cannot_create | cannot_write) when the disk does not take it.
   */
  void fetch(const DownloadRequest& request);

 private:
  struct Attempts;
  bool try_mirror(const DownloadRequest& request, const std::string& url, int part, Attempts& attempts);

  DownloadLimits limits_;
  std::chrono::nanoseconds connecting_{};  // spent on mirrors that do not answer
  std::unique_ptr<HttpTransfer> transfer_;
};

}  // namespace dtorch
