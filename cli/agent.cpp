// `dtorch __agent`: the launcher's helper. This process is the watchdog; the half that loads libtorch is its child, so that
// nothing which libtorch does can keep the watchdog from its work.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/engine_library.h"
#include "cli/exit_codes.h"
#include "cli/failure_text.h"
#include "cli/outlet.h"
#include "core/base/channel.h"
#include "core/launch/cleanup.h"

namespace dtorch::cli {
namespace {

struct AgentArguments {
  int control_fd = -1;
  int orders_fd = -1;
  int launcher_pidfd = -1;
  std::string tag;
  std::string scratch;
};

/** Says on the channel why nothing can be asked, and waits for the launcher to hang up: its answer comes before its end. */
int refuse_requests(int control_fd, const Error& error) {
  Channel channel{Fd(control_fd)};
  try {
    while (const auto request = channel.receive(Deadline::after(std::chrono::minutes(1)))) {
      nlohmann::json answer = to_failure(error);
      answer["type"] = "failure";
      answer["id"] = request->value("id", 0);
      channel.send(answer);
    }
  } catch (const Error&) {  // hung up
  }
  return exit_code(error.kind());
}

/** The helper half: sleeps until the launcher asks for something. */
int run_helper(const AgentArguments& arguments) {
  pollfd control{arguments.control_fd, POLLIN, 0};
  while (::poll(&control, 1, -1) < 0 && errno == EINTR) {
  }
  if ((control.revents & POLLIN) == 0) return 0;
  const engine::Engine* engine = nullptr;
  try {
    engine = &load_engine();
  } catch (const Error& error) {
    return refuse_requests(arguments.control_fd, error);
  }
  return engine_exit_code(engine->run_agent({arguments.control_fd}));
}

/** The store's socket and the control channel belong to the helper: a dead helper must be noticed. */
void close_others(const std::set<int>& keep) {
  std::vector<int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    all.push_back(std::stoi(entry.path().filename().string()));
  }
  for (const int fd : all) {
    if (fd > STDERR_FILENO && keep.count(fd) == 0) ::close(fd);
  }
}

int run_agent(const AgentArguments& arguments) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_IGN);  // it ends with the job
  for (const int fd : {arguments.control_fd, arguments.orders_fd, arguments.launcher_pidfd}) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  const pid_t watchdog = ::getpid();
  const pid_t helper = ::fork();
  if (helper < 0) throw Error(ErrorKind::os_resource, errno_text("fork", errno));
  if (helper == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != watchdog) return 0;
    ::close(arguments.orders_fd);
    return run_helper(arguments);
  }
  // The launcher looks after both. If it is dead already, there is all the more to do.
  const std::string self = fmt::format("{{\"type\":\"helper\",\"pid\":{}}}\n", helper);
  write_all(arguments.control_fd, self);
  const int helper_pidfd = static_cast<int>(::syscall(SYS_pidfd_open, helper, 0));
  close_others({arguments.orders_fd, arguments.launcher_pidfd, helper_pidfd});
  run_watchdog({arguments.launcher_pidfd, arguments.orders_fd, arguments.tag, arguments.scratch, helper_pidfd,
                helper});
  int status = 0;
  if (::waitpid(helper, &status, 0) != helper) return exit_code(ErrorKind::lost);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

void add_agent(CLI::App& app, Chosen& chosen) {
  auto arguments = std::make_shared<AgentArguments>();
  CLI::App* command = app.add_subcommand("__agent")->group("");
  command->add_option("--control-fd", arguments->control_fd)->required();
  command->add_option("--orders-fd", arguments->orders_fd)->required();
  command->add_option("--launcher-pidfd", arguments->launcher_pidfd)->required();
  command->add_option("--job", arguments->tag)->required();
  command->add_option("--scratch", arguments->scratch)->required();
  command->callback([arguments, &chosen] { chosen = [arguments] { return run_agent(*arguments); }; });
}

}  // namespace dtorch::cli
