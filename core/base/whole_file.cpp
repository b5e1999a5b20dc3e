#include "core/base/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "core/base/error.h"

namespace dtorch {

WholeFile::WholeFile(std::string path) : path_(std::move(path)) {
  struct stat info {};
  const bool special = ::stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  if (!special) aside_ = fmt::format("{}.{}.part", path_, ::getpid());
  const std::string& name = special ? path_ : aside_;
  file_ = Fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (special ? 0 : O_TRUNC), 0666));
  if (file_.valid()) return;
  const int error = errno;
  aside_.clear();
  throw Error(ErrorKind::cannot_create, fmt::format("{}: {}", path_, errno_text("open", error)),
              "name a file in a folder that can be written");
}

WholeFile::~WholeFile() {
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void WholeFile::fail(std::string_view call) const {
  throw Error(ErrorKind::cannot_write, fmt::format("{}: {}", path_, errno_text(call, errno)),
              "free some space, or name another file");
}

void WholeFile::commit(std::string_view text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file_.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write");
    done += static_cast<std::size_t>(n);
  }
  if (aside_.empty()) return;
  if (::fsync(file_.get()) != 0) fail("fsync");
  if (::rename(aside_.c_str(), path_.c_str()) != 0) fail("rename");
  aside_.clear();
  const auto folder = std::filesystem::path(path_).parent_path();
  const Fd directory(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid())
    ::fsync(directory.get());  // refused by some network file systems; the file itself is safe
}

}  // namespace dtorch
