#include "core/launch/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "core/base/error.h"

namespace dtorch {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/** Everything the child needs, prepared before fork: between fork and exec only async-signal-safe calls are allowed. */
struct ChildPlan {
  const char* program;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  int null_fd;
  int error_fd;
  pid_t parent;
  cpu_set_t cores;
};

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool keep_open(int fd) { return ::fcntl(fd, F_SETFD, 0) == 0; }

[[noreturn]] void run_child(const SpawnRequest& request, const ChildPlan& plan) {
  reset_signals();
  ::setpgid(0, 0);
  bool fine = !request.die_with_parent || ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  // The parent may have died before prctl; from here on its death is ours.
  if (request.die_with_parent && ::getppid() != plan.parent) ::_exit(127);
  fine = fine && ::dup2(plan.null_fd, STDIN_FILENO) >= 0;
  fine = fine && (request.stdout_fd < 0 || ::dup2(request.stdout_fd, STDOUT_FILENO) >= 0);
  fine = fine && (request.stderr_fd < 0 || ::dup2(request.stderr_fd, STDERR_FILENO) >= 0);
  for (const int fd : request.inherit) fine = fine && keep_open(fd);
  if (!request.cores.empty()) ::sched_setaffinity(0, sizeof plan.cores, &plan.cores);
  if (fine) ::execve(plan.program, plan.arguments.data(), plan.environment.data());
  const int error = errno;
  if (::write(plan.error_fd, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

[[noreturn]] void throw_exec_error(const std::string& program, int error) {
  std::string help;
  if (error == ENOENT)
    help = "the interpreter that its first line or its header names is not on this machine";
  if (error == ENOEXEC) help = "a script begins with a line that names its interpreter: #!/bin/sh";
  throw Error(ErrorKind::usage, errno_text(fmt::format("cannot run '{}'", program), error), help);
}

}  // namespace

std::optional<ExitStatus> ChildProcess::try_wait() {
  if (status_ || pid_ <= 0) return status_;
  int status = 0;
  const pid_t result = ::waitpid(pid_, &status, WNOHANG);
  if (result == pid_) {
    status_ = WIFSIGNALED(status) ? ExitStatus{0, WTERMSIG(status)} : ExitStatus{WEXITSTATUS(status), 0};
  }
  return status_;
}

void ChildProcess::signal(int number) const {
  if (running()) ::kill(pid_, number);
}

void ChildProcess::signal_group(int number) const {
  if (group_exists()) ::kill(-pid_, number);
}

bool ChildProcess::group_exists() const {
  if (pid_ <= 0 || group_gone_) return false;
  const bool exists = ::kill(-pid_, 0) == 0 || errno == EPERM;  // EPERM: only members of other users are left
  group_gone_ = !exists && status_;
  return exists;
}

ChildProcess spawn(const SpawnRequest& request) {
  Fd null_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::array<int, 2> ends{};
  if (!null_fd.valid() || ::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorKind::os_resource, errno_text(fmt::format("cannot start {}", request.program), errno));
  }
  const Fd error_in(ends[0]);
  Fd error_out(ends[1]);
  ChildPlan plan{request.program.c_str(),
                 pointers(request.arguments),
                 pointers(request.environment),
                 null_fd.get(),
                 error_out.get(),
                 ::getpid(),
                 {}};
  CPU_ZERO(&plan.cores);
  for (const int core : request.cores) CPU_SET(static_cast<std::size_t>(core), &plan.cores);

  const pid_t pid = ::fork();
  if (pid == 0) run_child(request, plan);
  if (pid < 0) throw Error(ErrorKind::os_resource, errno_text("cannot start another process: fork", errno));
  ::setpgid(pid, pid);  // whoever comes first; the group must exist before anybody signals it
  error_out.reset();
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const int pidfd_error = errno;

  int error = 0;
  ssize_t got = 0;
  do got = ::read(error_in.get(), &error, sizeof error);
  while (got < 0 && errno == EINTR);
  if (got == sizeof error || !pidfd.valid()) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    if (!pidfd.valid()) throw Error(ErrorKind::os_resource, errno_text("pidfd_open", pidfd_error));
    throw_exec_error(request.program, error);
  }
  return ChildProcess(pid, std::move(pidfd));
}

namespace {

constexpr char kNotExecutable[] = "it may not be executed (chmod +x makes it a program)";

ProgramPath examine(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return {"", 127, "no such program"};
    return {"", 126, errno_text("stat", error)};
  }
  if (S_ISDIR(info.st_mode)) return {"", 126, "it is a directory"};
  if (!S_ISREG(info.st_mode)) return {"", 126, "it is no ordinary file"};
  if (::access(path.c_str(), X_OK) != 0) return {"", 126, kNotExecutable};
  return {path, 0, ""};
}

}  // namespace

ProgramPath look_up_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return examine(name);
  ProgramPath result{"", 127, "no such program"};
  const char* variable = std::getenv("PATH");
  const std::string path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= path.size() && !name.empty();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = end == begin ? "." : path.substr(begin, end - begin);
    ProgramPath found = examine(folder + "/" + name);
    if (found.code == 0) return found;
    if (found.code == 126 && found.problem == kNotExecutable)
      result = found;  // a later folder may have a better one
    begin = end + 1;
  }
  return result;
}

std::optional<std::string> find_program(const std::string& name) {
  ProgramPath found = look_up_program(name);
  return found.code == 0 ? std::optional(std::move(found.path)) : std::nullopt;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

}  // namespace dtorch
