#include "core/base/placed.h"

namespace dtorch {

bool names_its_place(ErrorKind kind, std::string_view message) {
  if (kind != ErrorKind::spec && kind != ErrorKind::data) return false;
  return message.substr(0, message.find('\n')).find(": error: ") != std::string_view::npos;
}

}  // namespace dtorch
