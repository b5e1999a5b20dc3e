#include "core/data/checksum.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/data/gzip.h"

namespace dtorch {
namespace {

constexpr std::size_t kPieceBytes = 256 << 10;

}  // namespace

struct Md5::State {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

Md5::Md5() : state_(std::make_unique<State>()) {
  if (!state_->context || EVP_DigestInit_ex(state_->context.get(), EVP_md5(), nullptr) != 1) {
    throw Error(ErrorKind::os_resource, "this machine's OpenSSL offers no MD5 (FIPS mode?)",
                "Checksums of the known datasets are MD5. Run without FIPS mode, or use dataset.type: idx.");
  }
}
Md5::~Md5() = default;

void Md5::update(std::span<const std::uint8_t> bytes) {
  EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size());
}

std::string Md5::hex() {
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(state_->context.get(), digest.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string md5_of(std::span<const std::uint8_t> bytes) {
  Md5 sum;
  sum.update(bytes);
  return sum.hex();
}

std::string md5_of_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) throw Error(ErrorKind::data, fmt::format("{}: {}", path, errno_text("open", errno)));
  Md5 sum;
  std::vector<std::uint8_t> piece(kPieceBytes);
  while (true) {
    const auto got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(ErrorKind::data, fmt::format("{}: {}", path, errno_text("read", errno)));
    if (got == 0) return sum.hex();
    sum.update({piece.data(), static_cast<std::size_t>(got)});
  }
}

std::string md5_of_contents(const std::string& path, std::uint64_t limit) {
  InflatingReader reader(path);
  Md5 sum;
  std::vector<std::uint8_t> piece(kPieceBytes);
  std::uint64_t total = 0;
  while (const auto got = reader.read(piece)) {
    total += got;
    if (total > limit) {
      throw Error(ErrorKind::data,
                  fmt::format("{}: expected {} bytes once unpacked, found more", path, limit));
    }
    sum.update({piece.data(), got});
  }
  return sum.hex();
}

}  // namespace dtorch
