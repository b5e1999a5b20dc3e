#include "core/data/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "core/base/error.h"

namespace dtorch {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr int kMaxDimensions = 8;
constexpr std::uint64_t kMagicBytes = 4;

std::string_view type_name(std::uint8_t type) {
  switch (type) {
    case 0x08: return "unsigned byte";
    case 0x09: return "signed byte";
    case 0x0b: return "16-bit integer";
    case 0x0c: return "32-bit integer";
    case 0x0d: return "32-bit float";
    case 0x0e: return "64-bit float";
    default: return "no IDX type";
  }
}

}  // namespace

IdxFile::IdxFile(const std::string& path, int dimensions) : IdxFile(InflatingReader(path), dimensions) {}

IdxFile::IdxFile(InflatingReader reader, int dimensions) : reader_(std::move(reader)) {
  read_header(dimensions);
  check_fits();
}

std::string IdxFile::place(std::uint64_t offset) const {
  return fmt::format("{} {}", reader_.compressed() ? "unpacked offset" : "offset", offset);
}

std::string IdxFile::place_of(std::uint64_t data_byte) const { return place(header_bytes_ + data_byte); }

void IdxFile::fail(std::uint64_t offset, const std::string& what) const {
  throw Error(ErrorKind::data, fmt::format("{}: {}: {}", name(), place(offset), what),
              "It should be an IDX file of unsigned bytes, plain or gzip, as the MNIST files are.");
}

void IdxFile::read_header(int dimensions) {
  std::array<std::uint8_t, kMagicBytes> magic{};
  if (const auto got = reader_.read(magic); got < magic.size()) {
    fail(got,
         fmt::format("the file ends after {} bytes; expected a header of at least {}", got, 2 * kMagicBytes));
  }
  if (magic[0] != 0 || magic[1] != 0) {
    fail(0, fmt::format("expected an IDX magic number (00 00, type, dimensions), found {:02x}",
                        fmt::join(magic, " ")));
  }
  if (magic[2] != kUnsignedByte) {
    fail(2,
         fmt::format("expected type 08 (unsigned byte), found {:02x} ({})", magic[2], type_name(magic[2])));
  }
  const int found = magic[3];
  const int least = dimensions == 0 ? 2 : dimensions;
  const int most = dimensions == 0 ? kMaxDimensions : dimensions;
  if (found < least || found > most) {
    fail(3, least == most
                ? fmt::format("expected {} dimension{}, found {}", least, least == 1 ? "" : "s", found)
                : fmt::format("expected {} to {} dimensions, found {}", least, most, found));
  }
  header_bytes_ = kMagicBytes * (1 + static_cast<std::uint64_t>(found));
  data_bytes_ = 1;
  for (int i = 0; i < found; ++i) {
    const auto offset = kMagicBytes * (1 + static_cast<std::uint64_t>(i));
    std::array<std::uint8_t, 4> word{};
    if (const auto got = reader_.read(word); got < word.size()) {
      fail(offset + got, fmt::format("the file ends in the header; expected {} sizes", found));
    }
    const std::uint32_t size = std::uint32_t{word[0]} << 24 | word[1] << 16 | word[2] << 8 | word[3];
    if (size == 0) fail(offset, fmt::format("expected size {} to be at least 1, found 0", i));
    if (__builtin_mul_overflow(data_bytes_, std::uint64_t{size}, &data_bytes_) ||
        data_bytes_ > kMaxIdxBytes) {
      fail(offset, fmt::format("expected at most {} bytes of data in all, found sizes {}{}", kMaxIdxBytes,
                               fmt::join(shape_, " x "), fmt::format("{}{}", i == 0 ? "" : " x ", size)));
    }
    shape_.push_back(size);
  }
}

void IdxFile::check_fits() const {
  const auto most = reader_.most_bytes();
  if (header_bytes_ + data_bytes_ <= most && (reader_.compressed() || header_bytes_ + data_bytes_ == most))
    return;
  // The header is what is expected of the file; which of the two is wrong nobody can tell.
  fail(kMagicBytes, fmt::format("expected {} bytes of data ({}, as the header says), found {}{}", data_bytes_,
                                fmt::join(shape_, " x "), most - std::min(most, header_bytes_),
                                reader_.compressed() ? " at most in a gzip file of this size" : ""));
}

void IdxFile::read(std::span<std::uint8_t> out) {
  if (out.size() != data_bytes_) throw Error(ErrorKind::usage, "IdxFile::read: a buffer of the wrong size");
  if (const auto got = reader_.read(out); got < out.size()) {
    fail(header_bytes_ + got, fmt::format("the data ends after {} bytes; expected {} ({})", got, data_bytes_,
                                          fmt::join(shape_, " x ")));
  }
  // Also makes a gzip file's checksum be read and verified.
  std::uint8_t more = 0;
  if (reader_.read({&more, 1}) != 0) {
    fail(header_bytes_ + data_bytes_,
         fmt::format("expected the end of the data after {} bytes ({}), found more", data_bytes_,
                     fmt::join(shape_, " x ")));
  }
}

}  // namespace dtorch
