"""A real browser for pages: headless Chromium, asked for the DOM after scripts have run and for pictures."""
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib


def chromium():
    """The browser's path. Without one the test fails, or is skipped (exit code 77) where the archive has none to install."""
    for name in ("chromium", "google-chrome"):
        if found := shutil.which(name):
            return found
    if subprocess.run(["apt-cache", "show", "chromium"], capture_output=True, check=False).returncode == 0:
        raise AssertionError("no Chromium: ./dev deps installs it (package chromium)")
    print("skipped: this archive has no package chromium")
    sys.exit(77)


class Picture:
    """The pixels of a PNG of 8 bits a channel, RGB or RGBA, not interlaced, as Chromium writes them."""

    def __init__(self, data):
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        at, packed = 8, b""
        while at < len(data):
            length, kind = struct.unpack(">I4s", data[at:at + 8])
            body = data[at + 8:at + 8 + length]
            if kind == b"IHDR":
                self.width, self.height, depth, colour = struct.unpack(">IIBB", body[:10])
                assert depth == 8 and colour in (2, 6), (depth, colour)
                self.channels = 3 if colour == 2 else 4
            elif kind == b"IDAT":
                packed += body
            at += 12 + length
        self.rows = self._unfilter(zlib.decompress(packed))

    def _unfilter(self, raw):
        stride, step = self.width * self.channels, self.channels
        rows, above = [], bytearray(stride)
        for start in range(0, self.height * (stride + 1), stride + 1):
            kind, row = raw[start], bytearray(raw[start + 1:start + 1 + stride])
            for i in range(stride if kind else 0):
                left = row[i - step] if i >= step else 0
                up, corner = above[i], above[i - step] if i >= step else 0
                if kind == 1:
                    row[i] = (row[i] + left) & 255
                elif kind == 2:
                    row[i] = (row[i] + up) & 255
                elif kind == 3:
                    row[i] = (row[i] + (left + up) // 2) & 255
                else:
                    guess = left + up - corner
                    nearest = min((abs(guess - value), order, value) for order, value in enumerate((left, up, corner)))
                    row[i] = (row[i] + nearest[2]) & 255
            rows.append(row)
            above = row
        return rows

    def pixel(self, x, y):
        """(red, green, blue)."""
        at = x * self.channels
        return tuple(self.rows[y][at:at + 3])

    def colours(self, step=2):
        """The set of colours on every step-th pixel."""
        return {self.pixel(x, y) for y in range(0, self.height, step) for x in range(0, self.width, step)}


class Browser:
    """Looks at one HTML file, with a profile that goes away."""

    def __init__(self, page):
        self.page = pathlib.Path(page)

    def _run(self, page, *flags):
        with tempfile.TemporaryDirectory(prefix="dtorch-browser-") as profile:
            result = subprocess.run(
                [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", *flags, f"file://{page}"],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        if result.returncode != 0:
            raise AssertionError(f"chromium: exit {result.returncode}\n{result.stderr.decode(errors='replace')}")
        return result.stdout.decode()

    def evaluate(self, expression, width=1200, height=900):
        """What a JavaScript expression is worth on the page, as text. The script is this test's, on a copy of the page."""
        with tempfile.TemporaryDirectory(prefix="dtorch-browser-") as folder:
            copy = pathlib.Path(folder, "page.html")
            script = f"<script>addEventListener('load', () => document.title = 'value:' + ({expression}))</script>"
            copy.write_text(self.page.read_text() + script)
            dom = self._run(copy, "--dump-dom", f"--window-size={width},{height}")
        found = re.search(r"<title>value:(.*?)</title>", dom, re.S)
        if not found:
            raise AssertionError(f"the page says nothing about {expression}")
        return found.group(1)

    def screenshot(self, width=1200, height=900, dark=False):
        with tempfile.TemporaryDirectory(prefix="dtorch-browser-") as folder:
            picture = pathlib.Path(folder, "page.png")
            scheme = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
            self._run(self.page, f"--screenshot={picture}", f"--window-size={width},{height}", "--hide-scrollbars", *scheme)
            return Picture(picture.read_bytes())
