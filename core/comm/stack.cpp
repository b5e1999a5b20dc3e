#include "core/comm/stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

namespace dtorch {
namespace {

constexpr int kMaxFrames = 64;
constexpr int kHandlerFrames = 2;  // the handler and the kernel's trampoline

// What the handler writes: allocated before, since a handler may not.
struct Capture {
  std::array<void*, kMaxFrames> frames{};
  int count = 0;
  std::atomic<pid_t> wanted{0};
  std::atomic<bool> done{false};
};
Capture capture;

pid_t this_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

void on_signal(int /*signal*/) {
  const int saved = errno;
  if (capture.wanted.load() == this_thread() && !capture.done.load()) {
    capture.count = ::backtrace(capture.frames.data(), kMaxFrames);
    capture.done = true;
  }
  errno = saved;
}

std::string describe_frame(void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return fmt::format("{}", address);
  const std::string_view path(info.dli_fname);
  const auto file = path.substr(path.rfind('/') + 1);
  const auto offset_from = [address](const void* base) {
    return static_cast<const char*>(address) - static_cast<const char*>(base);
  };
  if (info.dli_sname == nullptr) return fmt::format("{} + {:#x}", file, offset_from(info.dli_fbase));
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), std::free);
  return fmt::format("{} + {:#x} ({})", status == 0 ? readable.get() : info.dli_sname,
                     offset_from(info.dli_saddr), file);
}

}  // namespace

std::vector<std::string> capture_stack(pid_t thread, std::chrono::milliseconds limit) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::array<void*, 1> first{};
  ::backtrace(first.data(), 1);  // the first call loads a library, which a handler must not do
  capture.done = false;
  capture.wanted = thread;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGURG, &action, &before);
  const bool sent = ::syscall(SYS_tgkill, ::getpid(), thread, SIGURG) == 0;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (sent && !capture.done && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  capture.wanted = 0;
  // A late signal is then ignored, as SIGURG is by default.
  ::sigaction(SIGURG, &before, nullptr);
  if (!sent) return {fmt::format("no thread {} in this process", thread)};
  if (!capture.done) return {fmt::format("thread {} did not answer within {} ms", thread, limit.count())};
  std::vector<std::string> lines;
  for (int i = kHandlerFrames; i < capture.count; ++i) {
    lines.push_back(describe_frame(capture.frames[static_cast<std::size_t>(i)]));
  }
  return lines;
}

}  // namespace dtorch
