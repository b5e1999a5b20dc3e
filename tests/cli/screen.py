"""A small terminal: what a program's output looks like in a window, for tests of boards and progress."""
import re

TOKEN = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(.)", re.S)


class Screen:
    """Understands what LiveBoard writes and nothing else: an unknown sequence is an error of the test."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.lines, self.history = [[]], []
        self.row = self.column = 0
        self.cursor_visible, self.autowrap = True, True
        self.wraps = 0
        self.left_over = ""

    def resize(self, columns, rows):
        """Reflows as VTE, kitty or tmux do: a line that is too long now takes several rows."""
        lines, row = [], 0
        for number, line in enumerate(self.lines):
            if number == self.row:
                row = len(lines)
            pieces = [line[i:i + columns] for i in range(0, max(len(line), 1), columns)]
            lines += pieces
        self.lines, self.row, self.columns, self.rows = lines, row, columns, rows
        self._scroll()

    def _scroll(self):
        while self.row >= self.rows:
            self.history.append(self.lines.pop(0))
            self.row -= 1

    def _put(self, character):
        if self.column >= self.columns:
            if not self.autowrap:
                self.column = self.columns - 1
            else:
                self.wraps += 1
                self._newline()
                self.column = 0
        line = self.lines[self.row]
        line += [" "] * (self.column + 1 - len(line))
        line[self.column] = character
        self.column += 1

    def _newline(self):
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])
        self._scroll()

    def feed(self, data):
        # A sequence may be cut by the end of a read.
        text = self.left_over + data.decode()
        cut = text.rfind("\x1b")
        if cut >= 0 and not re.match(r"\x1b\[\??[0-9;]*[A-Za-z]", text[cut:]):
            text, self.left_over = text[:cut], text[cut:]
        else:
            self.left_over = ""
        for argument, command, character in TOKEN.findall(text):
            if command:
                self._command(argument, command)
            elif character == "\r":
                self.column = 0
            elif character == "\n":
                self._newline()
            else:
                assert character >= " ", repr(character)
                self._put(character)

    def _command(self, argument, command):
        if command == "m":
            return
        if command == "A":
            self.row = max(self.row - int(argument or 1), 0)
        elif command == "K":
            del self.lines[self.row][self.column:]
        elif command == "J":
            del self.lines[self.row][self.column:]
            del self.lines[self.row + 1:]
        elif argument in ("?25", "?7") and command in "hl":
            if argument == "?25":
                self.cursor_visible = command == "h"
            else:
                self.autowrap = command == "h"
        else:
            raise AssertionError(f"unexpected sequence {argument}{command}")

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.history + self.lines)
