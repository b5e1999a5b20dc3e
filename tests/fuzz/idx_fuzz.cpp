// libFuzzer: whatever a file holds, reading it as IDX ends with its data or with an Error(data), within
// bounded memory. The input's first byte chooses how the rest becomes a file: as it is, or packed as valid
// gzip, which a fuzzer does not guess.
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/data/idx.h"

namespace {

constexpr std::uint64_t kMostData = 16 << 20;  // what the fuzzer may allocate

std::vector<std::uint8_t> packed(std::span<const std::uint8_t> bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::vector<std::uint8_t> out(deflateBound(&stream, bytes.size()) + 64);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

dtorch::Fd file_of(std::span<const std::uint8_t> bytes) {
  dtorch::Fd file(::memfd_create("idx_fuzz", MFD_CLOEXEC));
  if (!file.valid() ||
      ::pwrite(file.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> rest(data + 1, size - 1);
  const bool pack = (data[0] & 1) != 0;
  const int dimensions = data[0] >> 1 & 3;
  try {
    dtorch::IdxFile idx(
        dtorch::InflatingReader(file_of(pack ? packed(rest) : std::vector(rest.begin(), rest.end())), "fuzz"),
        dimensions);
    if (idx.data_bytes() > kMostData) return 0;
    std::vector<std::uint8_t> out(idx.data_bytes());
    idx.read(out);
  } catch (const dtorch::Error& error) {
    if (error.kind() != dtorch::ErrorKind::data) std::abort();
  }
  return 0;
}
