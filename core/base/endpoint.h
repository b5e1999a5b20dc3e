// Where ranks meet, as users write it: endpoints and the forms of init_method. Text only, nothing is looked up.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace dtorch {

/** A host and a port of a job's store. */
struct Endpoint {
  std::string host;  ///< a name or an address, without brackets
  int port = 0;      ///< 0 to 65535; 0: any free one
  bool operator==(const Endpoint&) const = default;
};

/** "host:port", an IPv6 address in brackets. */
std::string to_string(const Endpoint& endpoint);

/** Reads `host:port`, `[v6]:port`, or `tcp://` before either. Throws Error(usage) that says what is wrong. */
Endpoint parse_endpoint(std::string_view text);

enum class InitScheme { tcp, file, shared_filesystem, env };

struct InitUrl {
  InitScheme scheme = InitScheme::env;
  Endpoint endpoint;              ///< tcp
  std::string path;               ///< file, shared_filesystem: absolute
  std::optional<int> rank;        ///< ?rank=
  std::optional<int> world_size;  ///< ?world_size=
};

/**
 * Reads tcp://host:port, tcp://[address]:port, file:///path, shared_filesystem:///dir or env://, each with an
 * optional ?rank=R&world_size=W. Throws Error(spec) that says what is wrong and, as help, what was expected.
 */
InitUrl parse_init_url(std::string_view text);

}  // namespace dtorch
