"""tools/dev/fetch_libtorch.py against a server of our own on loopback, and a pip that names it."""

import hashlib
import http.server
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile

SCRIPT = pathlib.Path(os.environ["DTORCH_SOURCE"]) / "tools/dev/fetch_libtorch.py"
PAYLOAD = os.urandom(3 << 20)

PIP = """#!{python}
import json, pathlib, sys
if sys.argv[1] == "install":
    report = pathlib.Path(sys.argv[sys.argv.index("--report") + 1])
    report.write_text(json.dumps({{"install": [{{"download_info": {{"url": "{url}", "archive_info": {{"hashes": {{"sha256": "{digest}"}}}}}}}}]}}))
"""


def wheel():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("torch/lib/libtorch_cpu.so", PAYLOAD)
        archive.writestr("torch/lib/libtorch_cuda.so", b"not wanted")
        archive.writestr("torch/include/torch/all.h", "// wanted")
        archive.writestr("torch/nn/__init__.py", "not wanted")
    return data.getvalue()


class Server(http.server.ThreadingHTTPServer):
    """Serves `content`; a reply ends after `cut` bytes, by closing ("close") or by going silent ("stall"). As many replies
    as `nonsense` are no HTTP."""

    daemon_threads = True

    def __init__(self, content):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.cut, self.how, self.ranges, self.released = content, None, "close", [], threading.Event()
        self.nonsense = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.ranges.append(wanted)
        if server.nonsense:
            server.nonsense -= 1
            self.wfile.write(b"captive portal\r\n\r\n")
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        body = server.content[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cut] if server.cut else body)
        if server.cut and server.how == "stall":
            self.wfile.flush()
            server.released.wait(30)

    def log_message(self, *_):
        pass


class FetchLibtorchTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtorch-fetch-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.server = Server(wheel())
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.released.set)
        self.offer(hashlib.sha256(self.server.content).hexdigest())

    def offer(self, digest):
        """Makes pip report the server's file under this sha256, and pins it."""
        self.digest = digest
        url = f"http://127.0.0.1:{self.server.server_address[1]}/torch-2.11.0-cp311.whl"
        pip = self.folder / "pip"
        pip.write_text(PIP.format(python=sys.executable, url=url, digest=digest))
        pip.chmod(0o755)
        (self.folder / "pins.txt").write_text(f"torch==2.11.0 --hash=sha256:{digest}\n")

    def start(self, options=("--space", "16", "16")):
        dest = self.folder / "torch-2.11.0"
        command = [sys.executable, str(SCRIPT), str(dest), "--pip", str(self.folder / "pip")]
        return subprocess.Popen(command + ["--pins", str(self.folder / "pins.txt"), *options], stderr=subprocess.PIPE, text=True)

    def fetch(self):
        process = self.start()
        _, said = process.communicate(timeout=60)
        return process.returncode, said

    def assert_installed(self):
        torch = self.folder / "torch-2.11.0" / "torch"
        self.assertEqual((torch / "lib/libtorch_cpu.so").read_bytes(), PAYLOAD)
        self.assertEqual(sorted(path.name for path in torch.rglob("*") if path.is_file()), ["all.h", "libtorch_cpu.so"])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["pins.txt", "pip", "torch-2.11.0"])

    def test_unpacks_the_native_part_only_and_leaves_nothing_else(self):
        self.assertEqual(self.fetch()[0], 0)
        self.assert_installed()

    def test_goes_on_from_where_the_connection_ended(self):
        self.server.cut = 1 << 20
        code, said = self.fetch()
        self.assertEqual(code, 0, said)
        self.assertEqual(self.server.ranges, [None, "bytes=1048576-", "bytes=2097152-", "bytes=3145728-"])
        self.assert_installed()

    def test_tries_again_where_a_reply_is_no_http(self):
        self.server.nonsense = 1
        code, said = self.fetch()
        self.assertEqual(code, 0, said)
        self.server.nonsense = 100
        shutil.rmtree(self.folder / "torch-2.11.0")
        code, said = self.fetch()
        self.assertEqual(code, 69, said)
        self.assertNotIn("Traceback", said)

    def test_goes_on_after_it_was_killed(self):
        self.server.cut, self.server.how = 2 << 20, "stall"
        process = self.start()
        part = self.folder / "torch-2.11.0.downloads" / f"{self.digest}.part"
        deadline = time.monotonic() + 30
        while not part.exists() or part.stat().st_size < 2 << 20:
            self.assertLess(time.monotonic(), deadline, "the download never came to its middle")
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.server.cut = None
        code, said = self.fetch()
        self.assertEqual(code, 0, said)
        self.assertIn("going on from 2 MiB", said)
        self.assertEqual(self.server.ranges, [None, "bytes=2097152-"])
        self.assert_installed()

    def test_an_interruption_is_said_and_what_came_is_kept(self):
        self.server.cut, self.server.how = 1 << 20, "stall"
        process = self.start()
        part = self.folder / "torch-2.11.0.downloads" / f"{self.digest}.part"
        deadline = time.monotonic() + 30
        while not part.exists() or part.stat().st_size < 1 << 20:
            self.assertLess(time.monotonic(), deadline, "the download never began")
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)
        self.assertIn("interrupted; the same command goes on from here", said)
        self.assertNotIn("Traceback", said)
        self.assertEqual(part.stat().st_size, 1 << 20)

    def test_refuses_a_damaged_file_and_fetches_it_anew(self):
        good = self.server.content
        self.server.content = good[:1000] + b"?" + good[1001:]
        code, said = self.fetch()
        self.assertEqual(code, 65)
        self.assertIn("is damaged", said)
        self.assertFalse((self.folder / "torch-2.11.0").exists())
        self.server.content = good
        self.assertEqual(self.fetch()[0], 0)
        self.assert_installed()

    def test_refuses_another_file_than_the_pinned_one(self):
        (self.folder / "pins.txt").write_text(f"torch==2.11.0 --hash=sha256:{'0' * 64}\n")
        code, said = self.fetch()
        self.assertEqual(code, 65)
        self.assertIn("another torch==2.11.0 than the pinned one", said)
        self.assertEqual(self.server.ranges, [])

    def test_names_an_unreachable_server(self):
        self.server.shutdown()
        self.server.server_close()
        code, said = self.fetch()
        self.assertEqual(code, 69)
        self.assertIn("the same command goes on from there", said.lower())

    def test_asks_for_disk_space_before_it_downloads(self):
        process = self.start(options=("--space", "16", "1000000000000"))  # MiB: more than any disk has
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 73, said)
        self.assertIn("not enough disk space", said)
        self.assertIn("XDG_CACHE_HOME", said)
        self.assertEqual(self.server.ranges, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
