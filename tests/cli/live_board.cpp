// Drives a LiveBoard on stderr as `dtorch run` does, for board_pty.py: live_board RANKS FRAMES END, END how
// it ends.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "cli/terminal.h"

using namespace dtorch;

namespace {

void run(int ranks, int frames, const std::string& end) {
  Board board("demo", ranks, "gloo", "mnist");
  Outlet terminal(2, "standard error");
  LiveBoard live(terminal, [&](BoardSize size) { return board.render(size, true); });
  for (int rank = 0; rank < ranks; ++rank) board.phase(rank, "training");
  for (int frame = 1; frame <= frames; ++frame) {
    for (int rank = 0; rank < ranks; ++rank) {
      StepRecord record;
      record.rank = rank;
      record.epochs = 1;
      record.steps_per_epoch = frames;
      record.epoch_step = record.step = frame;
      record.loss = 1.0 / frame;
      record.step_ms = record.compute_ms = 1;
      board.update(record);
    }
    live.draw();
    if (end == "chatty") {
      for (int line = 0; line < 20; ++line) live.print_above("chat");
    }
    if (frame % 5 == 0) live.print_above("log line " + std::to_string(frame));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (end == "throw") throw std::runtime_error("on purpose");
  if (end == "abort") std::abort();
  if (end == "term") std::raise(SIGTERM);
  if (end == "quit") std::raise(SIGQUIT);
  if (end == "stop") {
    std::raise(SIGTSTP);
    for (int frame = 0; frame < 10; ++frame)
      live.draw(), std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  live.finish();
  live.print_above("after the end");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  try {
    run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
  } catch (const std::exception&) {
    return 70;
  }
  return 0;
}
