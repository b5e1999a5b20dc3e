// What goes wrong between ranks.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace dtorch {

/** What a Backend throws about its peers: kind lost, timeout or disagree, and the ranks concerned (may be
 * unknown). */
class PeerError : public Error {
 public:
  PeerError(ErrorKind kind, const std::string& message, std::vector<int> ranks = {}, std::string help = {},
            bool told = false)
      : Error(kind, message, std::move(help)), ranks_(std::move(ranks)), told_(told) {}
  /** lost: those whose connection broke; disagree: the one that called something else; timeout: those that
   * did not come. */
  const std::vector<int>& ranks() const { return ranks_; }
  /** Not seen here: another rank gave up first and said why. */
  bool told() const { return told_; }

 private:
  std::vector<int> ranks_;
  bool told_;
};

}  // namespace dtorch
