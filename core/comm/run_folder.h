// The life of the folder that a job's DirStore lives in: made by the first rank, removed by the last.
#pragma once
#include <string>
#include <vector>

#include "core/base/deadline.h"

namespace dtorch {

/**
 * One process's share in `OUTER/NAME`. Each process keeps a file there that says who it is; another one
 * on the same machine can so tell whether it still lives, one on another machine whether it still renews it.
 * Construction makes OUTER (not its parents) and the folder where they are not there. Throws
 * Error(cannot_create) when that fails, when OUTER is a file, or when the folder is left over from a run that
 * died (named, with what to remove); nothing of another run's is ever removed. Not thread-safe.
 */
class RunFolder {
 public:
  RunFolder(std::string outer, std::string run_id, const std::string& name = "dtorch.run");
  /** Gives the share up; the last living process removes the folder with dtorch's own files in it. Never
   * throws. */
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  /** Whether dead processes of this very run (an earlier attempt) were found. */
  bool restarted() const { return restarted_; }
  /** Call often while waiting for others: shows that this process lives, and throws Error(cannot_create) when
   * another one's does not. */
  void renew();
  /** False: the previous run's last process has just removed it; start over. */
  bool exists() const;

 private:
  struct Other;
  void enter();
  void look_around();
  std::vector<Other> others() const;
  [[noreturn]] void refuse(const Other& other, const std::string& state) const;
  void leave() const;

  std::string outer_;
  std::string path_;
  std::string run_id_;
  std::string file_;  ///< this process's
  bool restarted_ = false;
  long beats_ = 0;
  Clock::time_point next_beat_;
  struct Watched {
    std::string file;
    long beats;
    Clock::time_point since;
  };
  std::vector<Watched> watched_;  ///< processes on other machines
};

}  // namespace dtorch
