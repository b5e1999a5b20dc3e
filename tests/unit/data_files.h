// Files for the tests of core/data: made-up images, packed and damaged in every way.
#pragma once
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace dtorch::testing {

/** A folder of its own, gone at the end. */
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dtorch-data-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string write_file(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/** One gzip member. */
inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

inline std::string idx_header(std::uint8_t type, const std::vector<std::uint32_t>& sizes) {
  std::string header{'\0', '\0', static_cast<char>(type), static_cast<char>(sizes.size())};
  for (const auto size : sizes) header += big_endian(size);
  return header;
}

/** Bytes that follow a simple rule, so that a test can say what an image must hold. */
inline std::uint8_t pixel(std::size_t position) {
  return static_cast<std::uint8_t>(position * 7 + position / 256);
}

inline std::string idx_images(const std::vector<std::uint32_t>& sizes) {
  std::size_t count = 1;
  for (const auto size : sizes) count *= size;
  std::string bytes = idx_header(8, sizes);
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(pixel(i));
  return bytes;
}

inline std::string idx_labels(const std::vector<std::uint8_t>& labels) {
  return idx_header(8, {static_cast<std::uint32_t>(labels.size())}) +
         std::string(labels.begin(), labels.end());
}

/** The error that `action` throws must be of that kind; returns its message. */
template <typename Action>
std::string message_of(ErrorKind kind, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.kind()), to_string(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown; expected an error of kind " << to_string(kind);
  return {};
}

}  // namespace dtorch::testing
