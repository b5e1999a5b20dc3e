"""The live board on a real pseudo-terminal: redraws in place, never wraps, survives resizing, gives the cursor back."""
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
import unittest

sys.path.insert(0, os.path.dirname(__file__))
from screen import Screen

PROGRAM = os.path.join(os.environ["DTORCH_BUILD"], "live_board")


def set_size(fd, columns, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def continue_when_stopped():
    """Goes on as a child in a process group of its own, and as its shell: Ctrl-Z stops nobody who has none."""
    child = os.fork()
    if child == 0:
        return os.setpgid(0, 0)
    while True:
        status = os.waitpid(child, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status):
            os._exit(os.waitstatus_to_exitcode(status))
        os.write(1, b"[1]+ Stopped\r\n")
        os.kill(child, signal.SIGCONT)


def run(arguments, columns=80, rows=24, resizes=(), continued=False):
    """Runs the program in a window; RESIZES are (after so many frames, columns, rows). Returns (screen, bytes, status)."""
    pid, fd = pty.fork()
    if pid == 0:
        # Started only when the window has its size.
        sys.stdin.readline()
        if continued:
            continue_when_stopped()
        os.execv(PROGRAM, [PROGRAM] + [str(a) for a in arguments])
    set_size(fd, columns, rows)
    attributes = termios.tcgetattr(fd)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSANOW, attributes)
    os.write(fd, b"\n")
    screen, everything, resizes = Screen(columns, rows), b"", list(resizes)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([fd], [], [], 1)[0]:
            continue
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        everything += data
        screen.feed(data)
        if resizes and everything.count(b"\x1b[?7h") >= resizes[0][0]:
            # Stopped meanwhile: a frame for the old size must not arrive in the new one.
            os.kill(pid, signal.SIGSTOP)
            while select.select([fd], [], [], 0.1)[0]:
                data = os.read(fd, 65536)
                everything += data
                screen.feed(data)
            _, columns, rows = resizes.pop(0)
            set_size(fd, columns, rows)
            screen.resize(columns, rows)
            os.kill(pid, signal.SIGCONT)
    os.close(fd)
    return screen, everything, os.waitpid(pid, 0)[1]


class BoardTest(unittest.TestCase):
    def test_redraws_in_place(self):
        screen, everything, status = run([2, 40, "end"])
        self.assertEqual(status, 0)
        text = screen.text()
        # One board is left, with the last figures, and every log line above it in order.
        self.assertEqual(text.count("demo  2 ranks"), 1, text)
        self.assertEqual(text.count("epoch 1/1"), 1, text)
        self.assertIn("step 40/40", text)
        self.assertEqual([l for l in text.split("\n") if l.startswith("log")], [f"log line {i}" for i in range(5, 41, 5)])
        self.assertLess(text.index("log line 40"), text.index("demo  2 ranks"))
        self.assertLess(text.index("step 40/40"), text.index("after the end"))
        self.assertEqual(screen.wraps, 0)
        self.assertTrue(screen.cursor_visible and screen.autowrap)
        self.assertEqual(everything.count(b"\x1b[?25l"), 1)

    def test_draws_at_most_ten_times_a_second(self):
        start = time.monotonic()
        for end in ("end", "chatty"):  # lines above it are drawn with the next frame
            _, everything, _ = run([1, 50, end])
            self.assertLessEqual(everything.count(b"\x1b[?7h"), 10 * (time.monotonic() - start) + 2)
            start = time.monotonic()
        self.assertEqual(everything.count(b"chat\r"), 50 * 20)

    def test_fits_small_windows(self):
        for columns, rows in ((20, 5), (5, 3), (1, 1), (2, 2), (300, 2)):
            with self.subTest(columns=columns, rows=rows):
                screen, _, status = run([4, 10, "end"], columns, rows)
                self.assertEqual(status, 0)
                self.assertTrue(screen.cursor_visible and screen.autowrap)

    def test_many_ranks_fit(self):
        screen, _, _ = run([64, 20, "end"], 80, 12)
        self.assertIn("median", screen.text())
        self.assertEqual(screen.text().count("demo  64 ranks"), 1)

    def test_survives_resizing(self):
        screen, _, status = run([3, 100, "end"], 100, 30, [(2, 60, 30), (6, 120, 20), (9, 31, 24), (12, 80, 24)])
        self.assertEqual(status, 0)
        text = screen.text()
        self.assertEqual(text.count("demo  3 ranks"), 1, text)
        self.assertIn("step 100/100", text)
        self.assertTrue(screen.cursor_visible)

    def test_goes_on_in_a_window_too_small_for_the_last_frame(self):
        # What the terminal itself has scrolled away is out of reach; the board goes on below.
        screen, _, status = run([3, 60, "end"], 100, 30, [(2, 25, 4), (5, 80, 24)])
        self.assertEqual(status, 0)
        self.assertIn("step 60/60", screen.text())
        self.assertTrue(screen.cursor_visible)

    def test_gives_the_cursor_back_on_every_end(self):
        for end, expected in (("throw", 70), ("abort", -signal.SIGABRT), ("term", -signal.SIGTERM),
                              ("quit", -signal.SIGQUIT)):
            with self.subTest(end=end):
                screen, _, status = run([2, 10, end])
                self.assertEqual(os.waitstatus_to_exitcode(status), expected)
                self.assertTrue(screen.cursor_visible and screen.autowrap)
                self.assertIn("step 10/10" if end == "throw" else "step ", screen.text())

    def test_gives_the_cursor_back_while_it_is_stopped(self):
        screen, everything, status = run([2, 10, "stop"], continued=True)
        self.assertEqual(status, 0)
        shown, hidden = everything.index(b"\x1b[?25h"), everything.rindex(b"\x1b[?25l")
        self.assertTrue(shown < everything.index(b"Stopped") < hidden, everything)
        self.assertIn("[1]+ Stopped", screen.text(), "the next frame is below the shell's lines")
        self.assertTrue(screen.cursor_visible and screen.autowrap)


if __name__ == "__main__":
    unittest.main()
