// Files read front to back, inflated on the way if they are gzip. No libtorch here: fuzzers run this code by
// itself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/base/fd.h"

namespace dtorch {

/**
 * Reads a file in order, once. A file that starts with gzip's two magic bytes is inflated (several members in
 * a row are one stream, as gzip(1) has it) and its checksums are verified; any other is read as it is.
 * Whatever is wrong with the file is an Error(data) that names the file, the offset in it, what was expected
 * and what was found. Never holds more than a fixed buffer, so a file cannot make it allocate. Not
 * thread-safe.
 */
class InflatingReader {
 public:
  /** Opens PATH. Throws Error(data) when it is not a readable regular file. */
  explicit InflatingReader(const std::string& path);
  /** Takes over an open, seekable descriptor at offset 0; `name` stands for it in messages. */
  InflatingReader(Fd file, std::string name);
  ~InflatingReader();
  InflatingReader(InflatingReader&&) noexcept;
  InflatingReader& operator=(InflatingReader&&) noexcept;

  /** Fills `out`; returns less than its size only at the end of the contents. */
  std::size_t read(std::span<std::uint8_t> out);

  const std::string& name() const;
  bool compressed() const;
  /** More than this the contents cannot be: the file's size, times deflate's best ratio if compressed. */
  std::uint64_t most_bytes() const;
  /** How far the file itself has been read, for messages. */
  std::uint64_t file_offset() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtorch
