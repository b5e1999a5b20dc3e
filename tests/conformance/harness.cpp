// Conformance of a backend: `conformance --backend NAME --world N`. The parent holds the store and spawns N
// ranks of this same executable, each of which runs all cases in one go and reports on a pipe; every case is
// a gtest of the parent's.
#include "tests/conformance/harness.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "backends/registry/registry.h"
#include "core/base/fd.h"

extern char** environ;

namespace dtorch::conformance {
namespace {

constexpr auto kRunLimit = std::chrono::seconds(240);
constexpr int kResultFd = 3;

struct Options {
  std::string backend = "gloo";
  int world = 2;
  int rank = -1;  ///< -1: the parent
  int port = 0;
  std::string prefix;
  std::vector<std::string> cases;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto part : {collective_cases(), group_cases(), failure_cases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    const std::string value = argv[i + 1];
    if (key == "--backend") options.backend = value;
    if (key == "--world") options.world = std::stoi(value);
    if (key == "--rank") options.rank = std::stoi(value);
    if (key == "--port") options.port = std::stoi(value);
    if (key == "--prefix") options.prefix = value;
    if (key == "--case") options.cases.push_back(value);
  }
  return options;
}

StorePtr client(int port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(60);
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

int run_rank(const Options& options) {
  at::set_num_threads(1);
  const auto store = c10::make_intrusive<c10d::PrefixStore>(options.prefix, client(options.port));
  Rank rank(find_backend(options.backend), store, options.rank, options.world);
  for (const auto& one : all_cases()) {
    if (std::find(options.cases.begin(), options.cases.end(), one.name) == options.cases.end()) continue;
    nlohmann::json result{{"case", one.name}, {"message", ""}};
    rank.begin(one.name);
    try {
      one.run(rank);
    } catch (const std::exception& error) {
      result["message"] = std::string("failed: ") + error.what();
    }
    const std::string line = result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    if (::write(kResultFd, line.data(), line.size()) < 0) return 1;
  }
  return 0;
}

struct Child {
  pid_t pid = -1;
  Fd results;
  std::string text;
  std::string fate;  ///< how it ended
};

Child spawn(const Options& options, int rank, int port, const std::string& prefix,
            const std::vector<std::string>& cases) {
  std::vector<std::string> arguments{"conformance",
                                     "--backend",
                                     options.backend,
                                     "--world",
                                     std::to_string(options.world),
                                     "--rank",
                                     std::to_string(rank),
                                     "--port",
                                     std::to_string(port),
                                     "--prefix",
                                     prefix};
  for (const auto& name : cases) arguments.insert(arguments.end(), {"--case", name});
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error(errno_text("pipe2", errno));
  Child child;
  child.results = Fd(ends[0]);
  Fd writer(ends[1]);
  // dup2 onto itself would keep close-on-exec.
  if (writer.get() == kResultFd) writer = Fd(::fcntl(writer.get(), F_DUPFD_CLOEXEC, 10));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), kResultFd);
  const int failed = ::posix_spawn(&child.pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error(errno_text("posix_spawn", failed));
  return child;
}

/** Reads all pipes to their ends, or until a reader of a stopped process has been waited for long enough. */
void collect(std::vector<Child>& children, bool last_may_hang, Deadline deadline) {
  const auto open_ones = [&] {
    std::vector<pollfd> open;
    for (std::size_t i = 0; i < children.size(); ++i) {
      const bool counts = !(last_may_hang && i + 1 == children.size());
      if (children[i].results.valid() && counts) open.push_back({children[i].results.get(), POLLIN, 0});
    }
    return open;
  };
  for (auto open = open_ones(); !open.empty() && !deadline.expired(); open = open_ones()) {
    ::poll(open.data(), open.size(), std::min(deadline.poll_ms(), 1000));
    for (auto& child : children) {
      const auto found = std::find_if(open.begin(), open.end(),
                                      [&](const pollfd& one) { return one.fd == child.results.get(); });
      if (found == open.end() || found->revents == 0) continue;
      std::array<char, 65536> buffer{};
      const auto count = ::read(child.results.get(), buffer.data(), buffer.size());
      if (count <= 0) {
        child.results.reset();
      } else {
        child.text.append(buffer.data(), static_cast<std::size_t>(count));
      }
    }
  }
  for (auto& child : children) {
    int status = 0;
    if (child.results.valid()) ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, &status, 0);
    child.fate = WIFSIGNALED(status)
                     ? fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
                     : fmt::format("exited with {}", WEXITSTATUS(status));
  }
}

/** The parent's side: who said what about which case. */
class Session {
 public:
  explicit Session(Options options) : options_(std::move(options)) {
    c10d::TCPStoreOptions server;
    server.isServer = true;
    server.port = 0;
    server.waitWorkers = false;
    server_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", server);
  }

  const Options& options() const { return options_; }

  /** Messages per rank; empty text: passed. */
  std::vector<std::string> outcome(const Case& one) {
    if (one.kills) return execute({one.name}, true).at(one.name);
    if (healthy_.empty()) healthy_ = execute(selected(), false);
    return healthy_.at(one.name);
  }

 private:
  using Outcomes = std::map<std::string, std::vector<std::string>>;

  std::vector<std::string> selected() const {
    std::vector<std::string> names;
    const auto* suite = ::testing::UnitTest::GetInstance()->current_test_suite();
    for (const auto& one : all_cases()) {
      for (int i = 0; i < suite->total_test_count(); ++i) {
        const auto* info = suite->GetTestInfo(i);
        if (!one.kills && info->should_run() && std::string(info->name()) == one.name)
          names.emplace_back(one.name);
      }
    }
    return names;
  }

  Outcomes execute(const std::vector<std::string>& cases, bool last_dies) {
    const auto world = static_cast<std::size_t>(options_.world);
    const std::string prefix = fmt::format("run{}", ++runs_);
    std::vector<Child> children;
    for (std::size_t rank = 0; rank < world; ++rank) {
      children.push_back(spawn(options_, static_cast<int>(rank), server_->getPort(), prefix, cases));
    }
    collect(children, last_dies, Deadline::after(kRunLimit));
    Outcomes outcomes;
    for (const auto& name : cases) outcomes[name].resize(world);
    for (std::size_t rank = 0; rank < world; ++rank) {
      if (last_dies && rank + 1 == world) continue;
      for (const auto& name : cases) outcomes[name][rank] = "no result: the process " + children[rank].fate;
      std::istringstream lines(children[rank].text);
      for (std::string line; std::getline(lines, line);) {
        const auto json = nlohmann::json::parse(line);
        outcomes[json.at("case").get<std::string>()][rank] = json.at("message").get<std::string>();
      }
    }
    return outcomes;
  }

  Options options_;
  c10::intrusive_ptr<c10d::TCPStore> server_;
  Outcomes healthy_;
  int runs_ = 0;
};

class CaseTest : public ::testing::Test {
 public:
  CaseTest(Session& run, Case one) : run_(run), case_(one) {}
  void TestBody() override {
    const auto messages = run_.outcome(case_);
    for (std::size_t rank = 0; rank < messages.size(); ++rank) {
      EXPECT_EQ(messages[rank], "") << "on rank " << rank << " of " << messages.size();
    }
  }

 private:
  Session& run_;
  Case case_;
};

}  // namespace

ProcessGroupPtr Rank::group(milliseconds timeout, milliseconds init_timeout) {
  ProcessGroupOptions options;
  options.name = fmt::format("{}.{}", case_name_, ++groups_);
  options.timeout = timeout;
  options.init_timeout = init_timeout;
  return std::make_shared<ProcessGroup>(factory_, store_, rank_, world_, options);
}

void Rank::tell(const std::string& what) { store_->set(case_name_ + "/said/" + what, "yes"); }

void Rank::await(const std::string& what) {
  store_->wait({case_name_ + "/said/" + what}, std::chrono::seconds(30));
}

void expect(bool condition, const std::string& message) {
  if (!condition) throw std::runtime_error(message);
}

void expect_equal(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  expect(actual.sizes() == expected.sizes() && actual.scalar_type() == expected.scalar_type(),
         what + ": shape or type differs");
  // An int64 has more digits than a double.
  const bool same = c10::isFloatingType(actual.scalar_type())
                        ? at::allclose(actual.to(at::kDouble), expected.to(at::kDouble), 0, 0, true)
                        : at::equal(actual, expected);
  if (same) return;
  const auto a = actual.reshape({-1}).to(at::kDouble);
  const auto e = expected.reshape({-1}).to(at::kDouble);
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double got = a[i].item<double>();
    const double wanted = e[i].item<double>();
    if (got == wanted || (got != got && wanted != wanted)) continue;
    throw std::runtime_error(fmt::format("{}: element {} is {}, expected {}", what, i, got, wanted));
  }
  throw std::runtime_error(what + ": integers beyond 2^53 differ");
}

Thrown expect_error(const std::function<void()>& action, std::vector<ErrorKind> kinds) {
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration_cast<milliseconds>(Clock::now() - begin); };
  const auto check = [&](const Error& error) {
    const bool wanted = std::find(kinds.begin(), kinds.end(), error.kind()) != kinds.end();
    expect(wanted, fmt::format("expected an Error({}), got {}: {}", to_string(kinds.front()),
                               to_string(error.kind()), error.what()));
  };
  try {
    action();
  } catch (const CollectiveError& error) {
    check(error);
    return {error.kind(), error.what(), error.missing(), error.consequence(), elapsed()};
  } catch (const Error& error) {
    check(error);
    return {error.kind(), error.what(), {}, false, elapsed()};
  }
  throw std::runtime_error(
      fmt::format("expected an Error({}), nothing was thrown", to_string(kinds.front())));
}

Thrown expect_error(const std::function<void()>& action, ErrorKind kind) {
  return expect_error(action, std::vector<ErrorKind>{kind});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace dtorch::conformance

int main(int argc, char** argv) {
  using namespace dtorch::conformance;
  ::testing::InitGoogleTest(&argc, argv);
  const auto options = parse(argc, argv);
  try {
    if (options.rank >= 0) return run_rank(options);
    // A backend that must be there and is not fails the suite, it does not skip.
    dtorch::find_backend(options.backend);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "conformance: %s\n", error.what());
    return 1;
  }
  Session run(options);
  const std::string suite = fmt::format("Conformance_{}_w{}", options.backend, options.world);
  for (const auto& one : all_cases()) {
    if (options.world < one.min_world) continue;
    ::testing::RegisterTest(suite.c_str(), one.name, nullptr, nullptr, __FILE__, __LINE__,
                            [&run, one]() -> ::testing::Test* { return new CaseTest(run, one); });
  }
  return RUN_ALL_TESTS();
}
