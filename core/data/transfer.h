// One HTTP GET into a file. The only place that knows libcurl.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace dtorch {

struct TransferRequest {
  std::string url;
  std::string title;  ///< for progress lines
  int file = -1;      ///< written from `offset`; cut to nothing first when the server sends from the start
  std::uint64_t offset = 0;     ///< bytes already there: the rest is asked for
  std::uint64_t max_bytes = 0;  ///< of the whole file
  std::chrono::nanoseconds connect{};
  std::chrono::nanoseconds stall{};
};

enum class TransferEnd {
  complete,     ///< the server has sent all it said
  cut,          ///< broken off in the middle, or stalled: may be gone on with
  unreachable,  ///< no connection
  refused,      ///< an answer, but not the file (404, too large, not HTTP)
  disk,         ///< the file could not be written: error_number
};

struct TransferResult {
  TransferEnd end = TransferEnd::refused;
  bool resumed = false;  ///< what was there before is part of the file
  std::string reason;    ///< for people, empty when complete
  std::string help;
  int error_number = 0;
};

/** Keeps connections alive from one run to the next. Not thread-safe. */
class HttpTransfer {
 public:
  HttpTransfer();
  ~HttpTransfer();
  /** Blocks; ends at the latest when nothing has come for `stall`. Throws nothing but what std::string
   * throws. */
  TransferResult run(const TransferRequest& request);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace dtorch
