// The forms of init_method. Internal to core/job: what they lead to is core/comm's.
#pragma once
#include <string>
#include <string_view>

namespace dtorch::job {

struct InitMethod {
  std::string scheme;   ///< tcp, file, shared_filesystem, env
  std::string host;     ///< tcp: without brackets
  int port = 0;         ///< tcp
  std::string path;     ///< file, shared_filesystem: absolute
  std::string problem;  ///< not empty: what is wrong
  std::string help;
};

/** Takes a URL apart; a query (?rank=0&world_size=2) is allowed and left alone. */
InitMethod parse_init_method(std::string_view url);
/** localhost, 127.x.y.z, ::1: an address that other machines cannot reach. */
bool is_loopback(std::string_view host);

}  // namespace dtorch::job
