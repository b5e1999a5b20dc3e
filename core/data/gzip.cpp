#include "core/data/gzip.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "core/base/error.h"

namespace dtorch {
namespace {

constexpr std::size_t kBufferBytes = 256 << 10;
constexpr std::uint64_t kBestRatio = 1032;  // a deflate code of two bits gives at most 258 bytes
constexpr int kGzipWindow = 16 + MAX_WBITS;
constexpr std::uint64_t kMaxStep = 1 << 30;  // zlib counts in 32 bits

bool is_gzip_magic(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

Fd open_regular(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) throw Error(ErrorKind::data, fmt::format("{}: {}", path, errno_text("open", errno)));
  return file;
}

}  // namespace

struct InflatingReader::State {
  State(Fd opened, std::string called)
      : file(std::move(opened)), name(std::move(called)), buffer(kBufferBytes) {
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) fail(errno_text("fstat", errno));
    if (!S_ISREG(status.st_mode)) fail("not a regular file");
    file_bytes = static_cast<std::uint64_t>(status.st_size);
    refill();
    gzip = is_gzip_magic({buffer.data(), filled});
    if (gzip && inflateInit2(&stream, kGzipWindow) != Z_OK) {
      throw Error(ErrorKind::os_resource, fmt::format("{}: no memory to inflate it", name));
    }
  }
  ~State() {
    if (gzip) inflateEnd(&stream);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::uint64_t offset() const { return read_bytes - filled + used; }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::data, fmt::format("{}: {}", name, what),
                "The file is damaged or is not what it should be: fetch it again, or delete it so that it is "
                "downloaded anew.");
  }

  // False at the end of the file.
  bool refill() {
    used = 0;
    ssize_t got = 0;
    do {
      got = ::read(file.get(), buffer.data(), buffer.size());
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
      filled = 0;
      fail(fmt::format("offset {}: {}", read_bytes, errno_text("read", errno)));
    }
    filled = static_cast<std::size_t>(got);
    read_bytes += filled;
    return filled > 0;
  }

  std::size_t read_plain(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size() && (used < filled || refill())) {
      const auto count = std::min(out.size() - done, filled - used);
      std::copy_n(buffer.data() + used, count, out.data() + done);
      used += count;
      done += count;
    }
    return done;
  }

  std::size_t read_gzip(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size() && !finished) {
      if (used == filled && !refill()) end_of_file();
      if (between_members && !start_member()) continue;
      done += inflate_some(out.subspan(done));
    }
    return done;
  }

  // The file has ended: fine after a whole member only.
  void end_of_file() {
    if (!between_members) {
      fail(fmt::format(
          "offset {}: the file ends in the middle of its gzip data, after {} unpacked bytes; expected "
          "the rest of the data, its checksum and its length",
          offset(), unpacked));
    }
    finished = true;
  }

  // False where there is nothing more (finished) or not yet enough to tell.
  bool start_member() {
    if (finished) return false;
    if (buffer[used] != 0x1f || (used + 1 < filled && buffer[used + 1] != 0x8b)) {
      fail(fmt::format(
          "offset {}: expected the end of the file, or another gzip member (1f 8b), found {} bytes that "
          "start with {:02x}",
          offset(), file_bytes - std::min(file_bytes, offset()), buffer[used]));
    }
    inflateReset(&stream);
    between_members = false;
    return true;
  }

  std::size_t inflate_some(std::span<std::uint8_t> out) {
    stream.next_in = buffer.data() + used;
    stream.avail_in = static_cast<uInt>(filled - used);
    stream.next_out = out.data();
    stream.avail_out = static_cast<uInt>(std::min<std::uint64_t>(out.size(), kMaxStep));
    const auto room = stream.avail_out;
    const int result = inflate(&stream, Z_NO_FLUSH);
    used = filled - stream.avail_in;
    const std::size_t made = room - stream.avail_out;
    unpacked += made;
    if (result == Z_STREAM_END) {
      between_members = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail(fmt::format("offset {}: {}", offset(), fault(result)));
    }
    return made;
  }

  std::string fault(int result) const {
    if (result == Z_MEM_ERROR) return "no memory to inflate it";
    const std::string_view text = stream.msg != nullptr ? stream.msg : "invalid gzip data";
    if (text == "incorrect data check") {
      return fmt::format("the gzip checksum is wrong: expected CRC-32 {:08x}, the unpacked data has {:08x}",
                         last_word(), stream.adler);
    }
    if (text == "incorrect length check") {
      return fmt::format("the gzip length is wrong: expected {} bytes modulo 2^32, found {}", last_word(),
                         static_cast<std::uint32_t>(stream.total_out));
    }
    return fmt::format("the gzip data is damaged ({}) after {} unpacked bytes; expected valid deflate data",
                       text, unpacked);
  }

  // The four bytes read last, which zlib compared; they may have come in the buffer before this one.
  std::uint32_t last_word() const {
    std::array<std::uint8_t, 4> bytes{};
    if (::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset() - bytes.size())) != 4)
      return 0;
    return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<std::uint32_t>(bytes[3]) << 24;
  }

  Fd file;
  std::string name;
  std::vector<std::uint8_t> buffer;
  std::size_t used = 0;          // of the buffer
  std::size_t filled = 0;        // of the buffer
  std::uint64_t read_bytes = 0;  // of the file, the buffer included
  std::uint64_t file_bytes = 0;
  std::uint64_t unpacked = 0;
  bool gzip = false;
  bool between_members = false;
  bool finished = false;
  z_stream stream{};
};

InflatingReader::InflatingReader(const std::string& path) : InflatingReader(open_regular(path), path) {}
InflatingReader::InflatingReader(Fd file, std::string name)
    : state_(std::make_unique<State>(std::move(file), std::move(name))) {}
InflatingReader::~InflatingReader() = default;
InflatingReader::InflatingReader(InflatingReader&&) noexcept = default;
InflatingReader& InflatingReader::operator=(InflatingReader&&) noexcept = default;

std::size_t InflatingReader::read(std::span<std::uint8_t> out) {
  return state_->gzip ? state_->read_gzip(out) : state_->read_plain(out);
}

const std::string& InflatingReader::name() const { return state_->name; }
bool InflatingReader::compressed() const { return state_->gzip; }
std::uint64_t InflatingReader::file_offset() const { return state_->offset(); }
std::uint64_t InflatingReader::most_bytes() const {
  return state_->gzip ? state_->file_bytes * kBestRatio : state_->file_bytes;
}

}  // namespace dtorch
