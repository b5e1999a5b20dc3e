#include "cli/engine_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>

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

}  // namespace

std::string executable_path() { return fs::read_symlink("/proc/self/exe").string(); }

const engine::Engine& load_engine() {
  const std::string path = find_library().string();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(ErrorKind::lost, fmt::format("cannot load {}: {}", path, ::dlerror()),
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
