// The IDX format of the MNIST family: two zero bytes, a type, the number of dimensions, big-endian 32-bit
// sizes, data. No libtorch here: fuzzers run this code by itself.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/data/gzip.h"

namespace dtorch {

/** No IDX file may claim more data than this, whatever its header says. */
inline constexpr std::uint64_t kMaxIdxBytes = std::uint64_t{16} << 30;

/**
 * An IDX file of unsigned bytes, plain or gzip. The header is read and checked when made: its sizes must fit
 * the file, so a header that lies is found before anything is allocated for it. Faults are Error(data) naming
 * the file, the offset, what was expected and what was found. Not thread-safe.
 */
class IdxFile {
 public:
  /** Opens PATH, which must hold `dimensions` dimensions (0: two or more, as images have), the first one at
   * least 1. */
  IdxFile(const std::string& path, int dimensions);
  IdxFile(InflatingReader reader, int dimensions);

  /** Sizes, outermost first: {60000, 28, 28}. */
  const std::vector<std::int64_t>& shape() const { return shape_; }
  /** Bytes of data after the header: the product of shape(). */
  std::uint64_t data_bytes() const { return data_bytes_; }
  const std::string& name() const { return reader_.name(); }
  /** "offset 12", "unpacked offset 12": where a byte of the data stands, for messages. */
  std::string place_of(std::uint64_t data_byte) const;
  bool compressed() const { return reader_.compressed(); }

  /** Reads the data, all of it, into `out` (data_bytes() long), and checks that the file ends there. To be
   * called once. */
  void read(std::span<std::uint8_t> out);

 private:
  void read_header(int dimensions);
  void check_fits() const;
  std::string place(std::uint64_t offset) const;
  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const;

  InflatingReader reader_;
  std::vector<std::int64_t> shape_;
  std::uint64_t header_bytes_ = 0;
  std::uint64_t data_bytes_ = 0;
};

}  // namespace dtorch
