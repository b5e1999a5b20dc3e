// The forms of init_method.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace dtorch {

enum class InitScheme { tcp, file, shared_filesystem, env };

struct InitUrl {
  InitScheme scheme = InitScheme::env;
  std::string host;               ///< tcp: a name or an address, without brackets
  int port = 0;                   ///< tcp: 0 to 65535
  std::string path;               ///< file, shared_filesystem: absolute
  std::optional<int> rank;        ///< ?rank=
  std::optional<int> world_size;  ///< ?world_size=
};

/**
 * Reads tcp://host:port, tcp://[address]:port, file:///path, shared_filesystem:///dir or env://, each with an
 * optional ?rank=R&world_size=W. Throws Error(spec) that shows the text and what was expected.
 */
InitUrl parse_init_url(std::string_view text);

/** "host:port", an IPv6 address in brackets. */
std::string endpoint_text(std::string_view host, int port);

}  // namespace dtorch
