#include "core/engine/stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>

namespace dtorch::engine {
namespace {

constexpr int kMaxFrames = 64;

// Shared with the signal handler: the asked thread writes the frames, then their number.
std::array<void*, kMaxFrames> frames;
std::atomic<int> frame_count{-1};

int stack_signal() {
  return SIGRTMIN + 5;
}

void on_stack_signal(int) {
  frame_count.store(::backtrace(frames.data(), kMaxFrames));
}

std::string describe_frame(void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0) return fmt::format("{}", address);
  std::string_view library = info.dli_fname != nullptr ? info.dli_fname : "?";
  library.remove_prefix(library.rfind('/') + 1);
  if (info.dli_sname == nullptr) {
    const auto offset =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
    return fmt::format("{}+{:#x}", library, offset);
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
  return fmt::format("{} ({})", status == 0 ? name.get() : info.dli_sname, library);
}

}  // namespace

void prepare_stacks() {
  frame_count = ::backtrace(frames.data(), kMaxFrames);  // loads the unwinder outside of a signal handler
  struct sigaction action {};
  action.sa_handler = on_stack_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(stack_signal(), &action, nullptr);
}

std::vector<std::string> stack_of(pthread_t thread) {
  frame_count = -1;
  if (::pthread_kill(thread, stack_signal()) != 0) return {};
  for (int waited_ms = 0; frame_count.load() < 0; ++waited_ms) {
    if (waited_ms == 1000) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<std::string> stack;
  constexpr int kHandlerFrames = 2;  // the handler and the kernel's trampoline
  for (int i = kHandlerFrames; i < frame_count.load(); ++i) stack.push_back(describe_frame(frames[i]));
  return stack;
}

}  // namespace dtorch::engine
