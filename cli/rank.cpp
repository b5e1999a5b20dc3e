// `dtorch __rank`: one rank of a job. It loads libtorch at once and then waits for the launcher's word, because the
// pre-flight runs meanwhile.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/engine_library.h"
#include "cli/exit_codes.h"
#include "core/base/channel.h"
#include "core/base/host.h"
#include "core/base/messages.h"

namespace dtorch::cli {
namespace {

struct RankArguments {
  int spec_fd = -1;
  int control_fd = -1;
  std::string losses;
  bool bench = false;
};

std::string read_spec(int fd) {
  std::string text;
  std::array<char, 65536> chunk{};
  while (true) {
    // pread: all ranks share the file's offset.
    const ssize_t n = ::pread(fd, chunk.data(), chunk.size(), static_cast<off_t>(text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorKind::os_resource, errno_text("cannot read the spec", errno));
    if (n == 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(n));
  }
}

/** Waits for {"type":"start"}, reading not a byte more: what follows is the engine's. False: the job is over already. */
bool wait_for_start(int fd) {
  std::string line;
  for (char byte = 0; byte != '\n';) {
    const ssize_t n = ::read(fd, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    line.push_back(byte);
  }
  const auto message = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return message.is_object() && message.value("type", "") == "start";
}

int run_rank(const RankArguments& arguments) {
  ::fcntl(arguments.control_fd, F_SETFD, FD_CLOEXEC);  // the rank's own children have no business with it
  engine::RankRequest request;
  const engine::Engine* engine = nullptr;
  try {
    request.spec_yaml = read_spec(arguments.spec_fd);
    ::close(arguments.spec_fd);
    engine = &load_engine();
  } catch (const Error& error) {
    nlohmann::json message = to_failure(error, host_name());
    message["type"] = "failure";
    Channel(Fd(arguments.control_fd)).send(message);
    return exit_code(error.kind());
  }
  if (!wait_for_start(arguments.control_fd)) return exit_code(ErrorKind::interrupted);
  if (arguments.bench) {
    return engine_exit_code(engine->run_bench_rank({request.spec_yaml, arguments.control_fd}));
  }
  request.control_fd = arguments.control_fd;
  request.losses_file = arguments.losses;
  return engine_exit_code(engine->run_rank(request));
}

}  // namespace

void add_rank(CLI::App& app, Chosen& chosen) {
  auto arguments = std::make_shared<RankArguments>();
  CLI::App* command = app.add_subcommand("__rank")->group("");
  command->add_option("--spec-fd", arguments->spec_fd)->required();
  command->add_option("--control-fd", arguments->control_fd)->required();
  command->add_option("--losses", arguments->losses);
  command->add_flag("--bench", arguments->bench);
  command->callback([arguments, &chosen] { chosen = [arguments] { return run_rank(*arguments); }; });
}

}  // namespace dtorch::cli
