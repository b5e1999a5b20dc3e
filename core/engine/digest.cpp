#include "core/engine/digest.h"

#include <fmt/format.h>
#include <openssl/sha.h>
#include <torch/version.h>

#include <array>

#include "core/base/version.h"
#include "core/job/load.h"

namespace dtorch::engine {
namespace {

std::string sha256(const std::string& text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> bytes{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), bytes.data());
  std::string hex;
  for (const auto byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

/** Folders, interfaces and addresses are each machine's own; that they lead to the same data is compared
 * later. */
JobSpec without_local_settings(JobSpec spec) {
  spec.init_method = "env://";
  spec.dataset.root.clear();
  spec.metrics = {};
  spec.nodes = {};
  return spec;
}

}  // namespace

JobDigest job_digest(const JobSpec& spec) {
  auto text = fmt::format("dtorch: {}\nlibtorch: {}\n{}", version(), TORCH_VERSION,
                          to_yaml(without_local_settings(spec)));
  return {sha256(text), text};
}

}  // namespace dtorch::engine
