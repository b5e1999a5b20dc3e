// MD5, as the datasets' publishers give it. Against damage and mix-ups, not against an adversary.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace dtorch {

/** MD5 over bytes given piece by piece. Not thread-safe. */
class Md5 {
 public:
  Md5();
  ~Md5();
  void update(std::span<const std::uint8_t> bytes);
  /** 32 lower-case hexadecimal digits. To be called once, last. */
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string md5_of(std::span<const std::uint8_t> bytes);
/** Of the file as it lies there. Throws Error(data) when it cannot be read. */
std::string md5_of_file(const std::string& path);
/** Of what the file holds once unpacked (of itself, if it is not gzip), which may be `limit` bytes at most.
 * Throws Error(data). */
std::string md5_of_contents(const std::string& path, std::uint64_t limit);

}  // namespace dtorch
