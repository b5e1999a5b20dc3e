// What the terminal can show, and a board that redraws in place on it.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/outlet.h"
#include "core/base/deadline.h"
#include "core/report/board.h"

namespace dtorch {

enum class ColorChoice { automatic, always, never };
enum class ProgressChoice { automatic, plain, none };

/** "auto", "always", "never"; nothing for other words. */
std::optional<ColorChoice> parse_color(std::string_view text);
/** "auto", "plain", "none"; nothing for other words. */
std::optional<ProgressChoice> parse_progress(std::string_view text);

/** What the flags say. */
struct OutputChoices {
  ColorChoice color = ColorChoice::automatic;
  ProgressChoice progress = ProgressChoice::automatic;
  bool quiet = false;
  bool json = false;
};

/** What the process finds itself in; faked by tests. */
struct Surroundings {
  bool stdout_terminal = false;
  bool stderr_terminal = false;
  std::function<const char*(const char*)> get_env;
};
/** Those of this process. */
Surroundings surroundings();

enum class Progress { board, plain, none };

/** What to do, decided once. */
struct OutputStyle {
  bool stdout_colour = false;
  bool stderr_colour = false;
  Progress progress = Progress::plain;
  bool quiet = false;
  bool json = false;
};

/**
 * Colour: --color, else a terminal that is not TERM=dumb, and no NO_COLOR. A board: on a terminal (stderr),
 * not TERM=dumb, not under CI, and not where JSON lines go to a terminal too; else plain lines; none with
 * --quiet or --progress=none.
 */
OutputStyle decide_output(const OutputChoices& choices, const Surroundings& surroundings);

/** The size of the terminal behind a descriptor; 80 x 24 where it is not known. */
BoardSize window_size(int fd);

/**
 * Draws lines in place with relative cursor moves: what stood above on the terminal stays. The window's size
 * is asked for before each frame, lines never wrap. Hides the cursor from the first frame to finish(), and shows it
 * whenever a signal ends or stops (Ctrl-Z) the process meanwhile. A frame is left out while the terminal takes no
 * bytes (Ctrl-S): a job is never held up by its board. One at a time; not thread-safe.
 */
class LiveBoard {
 public:
  using Render = std::function<std::vector<std::string>(BoardSize)>;

  /** OUT is a terminal's and outlives this; RENDER gives lines that fit a size. */
  LiveBoard(Outlet& out, Render render);
  /** As finish(). */
  ~LiveBoard();
  LiveBoard(const LiveBoard&) = delete;
  LiveBoard& operator=(const LiveBoard&) = delete;

  /** Draws if the last frame is at least 100 ms old. */
  void draw();
  /** Puts a line for good above the board (a log line, a rank's output), together with the next frame. */
  void print_above(const std::string& line);
  /** Much waits for a terminal that takes nothing. */
  bool congested() const { return above_.size() + out_.waiting() >= kMostAbove; }
  /** Draws the last figures, leaves them standing, shows the cursor. Idempotent. */
  void finish();

 private:
  void frame();
  std::string go_to_top(BoardSize window) const;

  static constexpr std::size_t kMostAbove = std::size_t{1} << 20;

  Outlet& out_;
  Render render_;
  std::string above_;              ///< whole lines to put above the next frame
  std::vector<int> drawn_widths_;  ///< of the lines that stand on the terminal
  Clock::time_point last_{};
  bool active_ = false;
  bool finished_ = false;
};

}  // namespace dtorch
