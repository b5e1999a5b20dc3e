#include "core/data/transfer.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <string_view>

#include "core/base/deadline.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace dtorch {
namespace {

using namespace std::chrono_literals;

constexpr long kMaxRedirects = 5;
constexpr auto kProgressInterval = 1s;
constexpr double kMegabyte = 1e6;

void init_curl_once() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

long milliseconds(std::chrono::nanoseconds time) {
  return std::max(1L, static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(time).count()));
}

// The start of "content-range: bytes START-END/TOTAL"; -1 for anything else.
std::int64_t range_start(std::string_view line) {
  constexpr std::string_view kName = "content-range:";
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  if (line.size() < kName.size() ||
      !std::equal(kName.begin(), kName.end(), line.begin(), [&](char a, char b) { return same(b, a); })) {
    return -1;
  }
  line.remove_prefix(kName.size());
  const auto digits = line.find_first_of("0123456789");
  if (digits == std::string_view::npos || line.find("bytes") > digits) return -1;
  std::int64_t start = -1;
  std::from_chars(line.data() + digits, line.data() + line.size(), start);
  return start;
}

// What libcurl's callbacks work on while one GET runs.
class Receiver {
 public:
  Receiver(CURL* curl, const TransferRequest& request)
      : curl_(curl), request_(request), size_(request.offset) {}

  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self) {
    auto& receiver = *static_cast<Receiver*>(self);
    const std::string_view line(data, size * count);
    if (line.starts_with("HTTP/")) receiver.range_start_ = -1;  // of a redirect's next answer
    if (const auto start = range_start(line); start >= 0) receiver.range_start_ = start;
    return line.size();
  }

  static std::size_t on_data(char* data, std::size_t size, std::size_t count, void* self) {
    const std::string_view bytes(data, size * count);
    return static_cast<Receiver*>(self)->take(bytes) ? bytes.size() : 0;
  }

  TransferResult result(CURLcode code, std::string_view detail);

 private:
  bool take(std::string_view bytes);
  bool begin();
  bool write(std::string_view bytes);
  void tell_progress();
  bool refuse(std::string why) {
    result_.end = TransferEnd::refused;
    result_.reason = std::move(why);
    return false;
  }
  bool disk_fault() {
    result_.end = TransferEnd::disk;
    result_.error_number = errno;
    return false;
  }
  long status() const {
    long code = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  CURL* curl_;
  const TransferRequest& request_;
  TransferResult result_;
  std::uint64_t size_;  // of the file
  std::uint64_t total_ = 0;
  std::int64_t range_start_ = -1;
  bool begun_ = false;
  bool stopped_ = false;  // by us: result_ says why
  Clock::time_point told_ = Clock::now();
};

bool Receiver::take(std::string_view bytes) {
  if (begun_ || begin()) {
    if (size_ + bytes.size() <= request_.max_bytes) {
      if (write(bytes)) return true;
    } else {
      refuse(fmt::format("more than the expected {} bytes", request_.max_bytes));
    }
  }
  stopped_ = true;
  return false;
}

// Called with the first byte: is this the file, and from where?
bool Receiver::begin() {
  const auto code = status();
  if (code == 206) {
    if (range_start_ != static_cast<std::int64_t>(request_.offset)) {
      return refuse(fmt::format("asked for bytes from {}, got them from {}", request_.offset, range_start_));
    }
    result_.resumed = request_.offset > 0;
  } else if (code == 200) {
    if (::ftruncate(request_.file, 0) != 0) return disk_fault();
    size_ = 0;
  } else {
    return refuse(fmt::format("HTTP status {}", code));
  }
  if (::lseek(request_.file, static_cast<off_t>(size_), SEEK_SET) < 0) return disk_fault();
  curl_off_t length = -1;
  curl_easy_getinfo(curl_, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  total_ = length > 0 ? size_ + static_cast<std::uint64_t>(length) : 0;
  begun_ = true;
  if (size_ > 0)
    log_info(
        fmt::format("{}: going on at {:.1f} MB", request_.title, static_cast<double>(size_) / kMegabyte));
  return true;
}

bool Receiver::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto wrote = ::write(request_.file, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return disk_fault();
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
    size_ += static_cast<std::uint64_t>(wrote);
  }
  tell_progress();
  return true;
}

void Receiver::tell_progress() {
  const auto now = Clock::now();
  if (now - told_ < kProgressInterval) return;
  told_ = now;
  const auto done = static_cast<double>(size_) / kMegabyte;
  log_info(total_ > 0 ? fmt::format("{}: {:.1f} of {:.1f} MB", request_.title, done,
                                    static_cast<double>(total_) / kMegabyte)
                      : fmt::format("{}: {:.1f} MB", request_.title, done));
}

TransferResult Receiver::result(CURLcode code, std::string_view detail) {
  if (stopped_) return result_;
  const auto http = status();
  if (code == CURLE_OK && !begun_) {
    // An answer without a body. 416: nothing lies past what we have, so that may be all of it.
    if (http == 416 && request_.offset > 0) {
      result_.end = TransferEnd::complete;
      result_.resumed = true;
    } else {
      refuse(http == 200 || http == 206 ? std::string("an empty file") : fmt::format("HTTP status {}", http));
    }
    return result_;
  }
  if (code == CURLE_OK) {
    result_.end = TransferEnd::complete;
    return result_;
  }
  if (code == CURLE_FILESIZE_EXCEEDED) {
    refuse(fmt::format("more than the expected {} bytes", request_.max_bytes));
    return result_;
  }
  result_.reason = detail.empty() ? curl_easy_strerror(code) : std::string(detail);
  if (begun_) {
    result_.end = TransferEnd::cut;
    result_.reason += fmt::format(" (after {} bytes)", size_);
    return result_;
  }
  result_.end = http == 0 ? TransferEnd::unreachable : TransferEnd::refused;
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
    result_.help = "The server's certificate could not be checked: is the package ca-certificates installed?";
  }
  return result_;
}

}  // namespace

struct HttpTransfer::Handle {
  struct Cleanup {
    void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  };
  std::unique_ptr<CURL, Cleanup> curl;
  std::array<char, CURL_ERROR_SIZE> detail{};

  void set_up(const TransferRequest& request, Receiver& receiver) {
    CURL* const c = curl.get();
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, request.url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);  // do not wait for a name look-up that has timed out
#endif
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, kMaxRedirects);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "dtorch");
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(request.connect));
    curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(request.max_bytes));
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, std::max(1L, milliseconds(request.stall) / 1000));
    if (request.offset > 0) {
      curl_easy_setopt(c, CURLOPT_RANGE, fmt::format("{}-", request.offset).c_str());
    }
    detail.front() = '\0';
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, detail.data());
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, &Receiver::on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, &receiver);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, &Receiver::on_data);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &receiver);
  }
};

HttpTransfer::HttpTransfer() : handle_(std::make_unique<Handle>()) {
  init_curl_once();
  handle_->curl.reset(curl_easy_init());
  if (!handle_->curl) throw Error(ErrorKind::os_resource, "cannot start libcurl");
}
HttpTransfer::~HttpTransfer() = default;

TransferResult HttpTransfer::run(const TransferRequest& request) {
  Receiver receiver(handle_->curl.get(), request);
  handle_->set_up(request, receiver);
  const auto code = curl_easy_perform(handle_->curl.get());
  return receiver.result(code, handle_->detail.data());
}

}  // namespace dtorch
