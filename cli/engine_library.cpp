#include "cli/engine_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include "cli/commands.h"
#include "cli/exit_codes.h"

namespace dtorch::cli {
namespace {

namespace fs = std::filesystem;

fs::path find_library() {
  const fs::path folder = fs::path(executable_path()).parent_path();
  const std::array<fs::path, 2> places{folder / "libdtorch.so",
                                       folder.parent_path() / "lib" / "libdtorch.so"};
  std::error_code ignored;
  for (const auto& place : places) {
    if (fs::exists(place, ignored)) return place;
  }
  throw Error(ErrorKind::lost,
              fmt::format("libdtorch.so is neither at {} nor at {}", places[0].string(), places[1].string()),
              "build it beside the executable (ninja dtorch) or install both");
}

std::terminate_handler usual_end = nullptr;

/** libtorch runs out of memory in places that let nothing be caught. */
void end_without_memory() {
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    ::_exit(exit_code(ErrorKind::os_resource));
  } catch (...) {  // the usual end says what it is
  }
  usual_end();
}

}  // namespace

std::string executable_path() { return fs::read_symlink("/proc/self/exe").string(); }

const engine::Engine& load_engine() {
  if (usual_end == nullptr) usual_end = std::set_terminate(end_without_memory);
  const std::string path = find_library().string();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string reason = ::dlerror();
    if (reason.find("failed to map") != std::string::npos ||
        reason.find("allocate memory") != std::string::npos)
      throw Error(ErrorKind::os_resource, fmt::format("not enough memory to load {}: {}", path, reason),
                  "free some, or raise the limit (ulimit -v)");
    throw Error(ErrorKind::lost, fmt::format("cannot load {}: {}", path, reason),
                "a library it needs is missing or of another version: build dtorch again");
  }
  const auto entry = reinterpret_cast<engine::EntryPoint>(::dlsym(library, "dtorch_engine"));
  const engine::Engine* engine = entry != nullptr ? entry() : nullptr;
  if (engine == nullptr || engine->abi != engine::kAbi) {
    throw Error(ErrorKind::lost, fmt::format("{} does not belong to this executable", path),
                "build or install both from the same sources");
  }
  return *engine;
}

int engine_exit_code(int status) {
  const bool by_signal = status > 128;
  return status == 0 || by_signal ? status : exit_code(static_cast<ErrorKind>(status - 1));
}

}  // namespace dtorch::cli
