#include "core/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "core/base/error.h"

namespace dtorch {

bool asks_to_stop(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

SignalWatch::SignalWatch() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    // What was ignored when we were started stays so: nohup, or a job in the background of a script.
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&watched, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &watched, &previous_);
  fd_ = Fd(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.valid()) throw Error(ErrorKind::os_resource, errno_text("signalfd", errno));
}

SignalWatch::~SignalWatch() {
  take();  // what came too late to matter must not kill the process now
  ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

std::vector<int> SignalWatch::take() {
  std::vector<int> numbers;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info)
    numbers.push_back(static_cast<int>(info.ssi_signo));
  return numbers;
}

}  // namespace dtorch
