#include "cli/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "core/report/text.h"

namespace dtorch {
namespace {

constexpr std::chrono::milliseconds kFrame{100};
constexpr std::size_t kMostPending = 256 << 10;
constexpr std::string_view kHideCursor = "\x1b[?25l";
constexpr std::string_view kShowCursor = "\x1b[?25h";
constexpr std::string_view kNoWrap = "\x1b[?7l";
constexpr std::string_view kWrap = "\x1b[?7h";
constexpr std::string_view kClearRight = "\x1b[K";
constexpr std::string_view kClearBelow = "\x1b[J";

/** The terminal whose cursor is hidden; -1: none. Read by signal handlers. */
std::atomic<int> hidden_cursor_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free);

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

bool takes_bytes(int fd, int wait_ms) {
  pollfd poller{fd, POLLOUT, 0};
  return ::poll(&poller, 1, wait_ms) == 1 && (poller.revents & POLLOUT) != 0;
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

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EAGAIN) {
      if (!takes_bytes(fd, 1000)) return false;
    } else if (written < 0 && errno != EINTR) {
      return false;
    } else if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  return true;
}

LiveBoard::LiveBoard(int fd, Render render) : fd_(fd), render_(std::move(render)) {}

LiveBoard::~LiveBoard() { finish(); }

void LiveBoard::draw() {
  if (finished_ || (above_.empty() && Clock::now() - last_ < kFrame)) return;
  if (takes_bytes(fd_, 0)) frame();
}

void LiveBoard::print_above(const std::string& line) {
  if (finished_) {
    write_all(fd_, line + "\n");
    return;
  }
  above_ += line + "\r\n";
  // A terminal that is stopped for long gets what is left at the end; past this, waiting for it is the lesser
  // evil.
  if (above_.size() > kMostPending || takes_bytes(fd_, 0)) frame();
}

void LiveBoard::finish() {
  if (std::exchange(finished_, true)) return;
  if ((active_ && takes_bytes(fd_, 200)) || !above_.empty()) frame();
  if (active_) write_all(fd_, kShowCursor);
  hidden_cursor_fd = -1;
}

std::string LiveBoard::go_to_top(BoardSize window) const {
  // A window that was made narrower has broken the old lines: count the rows that they take now.
  int rows = 0;
  for (const int width : drawn_widths_) rows += std::max(1, (width + window.columns - 1) / window.columns);
  rows = std::min(rows, window.rows - 1);
  return rows > 0 ? fmt::format("\r\x1b[{}A", rows) : "\r";
}

void LiveBoard::frame() {
  const BoardSize window = window_size(fd_);
  // The last column and the last row stay free: writing there scrolls or wraps on some terminals.
  const std::vector<std::string> lines =
      render_({std::max(window.columns - 1, 1), std::max(window.rows - 1, 0)});
  std::string text;
  if (!active_) {
    hidden_cursor_fd = fd_;
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
  write_all(fd_, text);
  last_ = Clock::now();
}

void restore_terminal() noexcept {
  const int fd = hidden_cursor_fd.exchange(-1);
  if (fd < 0) return;
  const int saved = errno;
  // One write each; nothing can be done where they fail.
  if (::write(fd, kWrap.data(), kWrap.size()) < 0 ||
      ::write(fd, kShowCursor.data(), kShowCursor.size()) < 0) {
  }
  errno = saved;
}

}  // namespace dtorch
