#include "cli/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "core/report/text.h"

namespace dtorch {
namespace {

constexpr std::chrono::milliseconds kFrame{100};
constexpr std::string_view kHideCursor = "\x1b[?25l";
constexpr std::string_view kShowCursor = "\x1b[?25h";
constexpr std::string_view kNoWrap = "\x1b[?7l";
constexpr std::string_view kWrap = "\x1b[?7h";
constexpr std::string_view kClearRight = "\x1b[K";
constexpr std::string_view kClearBelow = "\x1b[J";

/** The terminal whose cursor is hidden; -1: none. Read by signal handlers. */
std::atomic<int> hidden_cursor_fd{-1};
/** Ctrl-Z, and fg again. */
std::atomic<bool> was_stopped{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

constexpr std::array kDeadly{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV,
                             SIGBUS, SIGFPE,  SIGILL, SIGXCPU, SIGUSR1, SIGUSR2};

/** For handlers: nothing can be done where it fails, and a paused terminal must not keep a process alive. */
void put(int fd, std::string_view text) {
  pollfd entry{fd, POLLOUT, 0};
  if (fd < 0 || ::poll(&entry, 1, 0) != 1 || ::write(fd, text.data(), text.size()) < 0) return;
}

void show_cursor_and_die(int number) {
  const int fd = hidden_cursor_fd.exchange(-1);
  put(fd, kWrap);
  put(fd, kShowCursor);
  ::signal(number, SIG_DFL);
  ::raise(number);  // blocked until this returns
}

void show_cursor_and_stop(int number) {
  const int saved = errno;
  const int fd = hidden_cursor_fd;
  put(fd, kWrap);
  put(fd, kShowCursor);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, number);
  ::signal(number, SIG_DFL);
  ::raise(number);
  ::pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);  // here it stands until SIGCONT
  ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  ::signal(number, show_cursor_and_stop);
  was_stopped = true;
  put(fd, kHideCursor);
  errno = saved;
}

/** What somebody else handles or ignores (nohup, a sanitizer) stays so. */
void exchange_handler(int number, void (*from)(int), void (*to)(int)) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  if ((action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == from) ::signal(number, to);
}

/** The cursor of FD is about to be hidden. */
void hide_cursor(int fd) {
  hidden_cursor_fd = fd;
  for (const int number : kDeadly) exchange_handler(number, SIG_DFL, show_cursor_and_die);
  exchange_handler(SIGTSTP, SIG_DFL, show_cursor_and_stop);
}

/** The cursor is shown again. */
void leave_cursor() {
  hidden_cursor_fd = -1;
  for (const int number : kDeadly) exchange_handler(number, show_cursor_and_die, SIG_DFL);
  exchange_handler(SIGTSTP, show_cursor_and_stop, SIG_DFL);
}

bool is_set(const Surroundings& surroundings, const char* name) {
  const char* value = surroundings.get_env(name);
  return value != nullptr && *value != '\0';
}

bool is_dumb(const Surroundings& surroundings) {
  const char* term = surroundings.get_env("TERM");
  return term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
}

bool in_ci(const Surroundings& surroundings) {
  return is_set(surroundings, "CI") && std::string_view(surroundings.get_env("CI")) != "false";
}

/** Columns of a line without its colour codes. */
int visible_width(const std::string& line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line.compare(i, 2, "\x1b[") == 0) {
      i = line.find('m', i);
      if (i == std::string::npos) break;
    } else {
      plain += line[i];
    }
  }
  return report::text_width(plain);
}

}  // namespace

std::optional<ColorChoice> parse_color(std::string_view text) {
  if (text == "auto") return ColorChoice::automatic;
  if (text == "always") return ColorChoice::always;
  if (text == "never") return ColorChoice::never;
  return std::nullopt;
}

std::optional<ProgressChoice> parse_progress(std::string_view text) {
  if (text == "auto") return ProgressChoice::automatic;
  if (text == "plain") return ProgressChoice::plain;
  if (text == "none") return ProgressChoice::none;
  return std::nullopt;
}

Surroundings surroundings() {
  return {::isatty(STDOUT_FILENO) == 1, ::isatty(STDERR_FILENO) == 1,
          [](const char* name) -> const char* { return std::getenv(name); }};
}

OutputStyle decide_output(const OutputChoices& choices, const Surroundings& around) {
  OutputStyle style;
  style.quiet = choices.quiet;
  style.json = choices.json;
  const bool automatic_colour = !is_set(around, "NO_COLOR") && !is_dumb(around);
  const auto colour = [&](bool terminal) {
    if (choices.color != ColorChoice::automatic) return choices.color == ColorChoice::always;
    return terminal && automatic_colour;
  };
  style.stdout_colour = colour(around.stdout_terminal);
  style.stderr_colour = colour(around.stderr_terminal);
  const bool board = around.stderr_terminal && !is_dumb(around) && !in_ci(around) &&
                     !(choices.json && around.stdout_terminal);
  if (choices.quiet || choices.progress == ProgressChoice::none) {
    style.progress = Progress::none;
  } else if (choices.progress == ProgressChoice::plain || !board) {
    style.progress = Progress::plain;
  } else {
    style.progress = Progress::board;
  }
  return style;
}

BoardSize window_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

LiveBoard::LiveBoard(Outlet& out, Render render) : out_(out), render_(std::move(render)) {}

LiveBoard::~LiveBoard() { finish(); }

void LiveBoard::draw() {
  if (!finished_ && Clock::now() - last_ >= kFrame && out_.waiting() == 0) frame();
}

void LiveBoard::print_above(const std::string& line) {
  if (finished_) return out_.write(line + "\n");
  above_ += line + "\r\n";
}

void LiveBoard::finish() {
  if (std::exchange(finished_, true)) return;
  if (active_ || !above_.empty()) frame();
  if (active_) out_.write(kShowCursor);
  // Whatever ends this process before the terminal has that: it is written again.
  if (active_) out_.flush();
  leave_cursor();
}

std::string LiveBoard::go_to_top(BoardSize window) const {
  // A window that was made narrower has broken the old lines: count the rows that they take now.
  int rows = 0;
  for (const int width : drawn_widths_) rows += std::max(1, (width + window.columns - 1) / window.columns);
  rows = std::min(rows, window.rows - 1);
  return rows > 0 ? fmt::format("\r\x1b[{}A", rows) : "\r";
}

void LiveBoard::frame() {
  const BoardSize window = window_size(out_.fd());
  if (was_stopped.exchange(false)) drawn_widths_.clear();  // the shell has written below the last frame
  // The last column and the last row stay free: writing there scrolls or wraps on some terminals.
  const std::vector<std::string> lines =
      render_({std::max(window.columns - 1, 1), std::max(window.rows - 1, 0)});
  std::string text;
  if (!active_) {
    hide_cursor(out_.fd());
    active_ = true;
    text += kHideCursor;
  }
  text += go_to_top(window);
  if (!above_.empty()) text.append(kClearBelow).append(std::exchange(above_, {}));
  text += kNoWrap;
  drawn_widths_.clear();
  for (const std::string& line : lines) {
    text.append(line).append(kClearRight).append("\r\n");
    drawn_widths_.push_back(visible_width(line));
  }
  text.append(kClearBelow).append(kWrap);
  out_.write(text);
  last_ = Clock::now();
}

}  // namespace dtorch
