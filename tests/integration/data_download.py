"""Downloads of datasets from mirrors of the test's own on loopback: whole, cut, wrong, slow, two processes at once."""
import ctypes
import gzip
import hashlib
import http.server
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
import unittest

PROBE = os.environ["DTORCH_BUILD"] + "/data_probe"
CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REC, MS_PRIVATE = 1, 0x4000, 0x40000
NAMES = ["train-images", "train-labels", "t10k-images", "t10k-labels"]


def md5(data):
    return hashlib.md5(data).hexdigest()


def idx(count, item, seed):
    noise = random.Random(seed)
    shape = [count] + ([item] if item else [])
    header = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    return header + bytes(noise.randrange(10) if not item else noise.randrange(256) for _ in range(count * max(item, 1)))


CONTENTS = dict(zip(NAMES, [idx(4000, 100, 1), idx(4000, 0, 2), idx(50, 100, 3), idx(50, 0, 4)]))
PACKED = {name: gzip.compress(data, mtime=0) for name, data in CONTENTS.items()}
BIG = "train-images"


class Mirror(http.server.BaseHTTPRequestHandler):
    """Serves /BEHAVIOUR/FILE.gz."""
    protocol_version = "HTTP/1.1"
    requests = []          # (behaviour, file, Range header)
    lock = threading.Lock()
    release = threading.Event()

    def log_message(self, *_):
        pass

    def do_GET(self):
        _, behaviour, file = self.path.split("/")
        name = file.removesuffix(".gz")
        wanted = self.headers.get("Range")
        with Mirror.lock:
            seen = sum(1 for entry in Mirror.requests if entry[:2] == (behaviour, name))
            Mirror.requests.append((behaviour, name, wanted))
        self.data = PACKED[name]
        self.start = int(re.fullmatch(r"bytes=(\d+)-", wanted).group(1)) if wanted else 0
        getattr(self, "serve_" + behaviour.split("-")[0])(name, seen)

    def head(self, status, length, headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for key, value in headers:
            self.send_header(key, value)
        self.end_headers()

    def body_from_start(self):
        """The answer's head, for the range asked for; returns the bytes it announces."""
        if self.start == 0:
            self.head(200, len(self.data))
        elif self.start >= len(self.data):
            self.head(416, 0)
        else:
            last = len(self.data) - 1
            self.head(206, len(self.data) - self.start,
                      [("Content-Range", f"bytes {self.start}-{last}/{len(self.data)}")])
        return self.data[self.start:]

    def serve_good(self, name, seen):
        self.wfile.write(self.body_from_start())

    def serve_cut(self, name, seen):
        """Every connection breaks off after a third of the file."""
        self.wfile.write(self.body_from_start()[:len(self.data) // 3 + 1])
        self.close_connection = True

    def serve_noranges(self, name, seen):
        self.head(200, len(self.data))
        self.wfile.write(self.data if seen else self.data[:len(self.data) // 2])
        self.close_connection = not seen

    def serve_wrongrange(self, name, seen):
        if self.start == 0:
            return self.serve_cut(name, seen)
        self.head(206, len(self.data), [("Content-Range", f"bytes 0-{len(self.data) - 1}/{len(self.data)}")])
        self.wfile.write(self.data)

    def serve_wrong(self, name, seen):
        self.data = bytes([self.data[0]]) + self.data[1:-20] + b"x" * 20
        self.wfile.write(self.body_from_start())

    def serve_html(self, name, seen):
        self.data = b"<html>Please log in to the network</html>"
        self.wfile.write(self.body_from_start())

    def serve_repacked(self, name, seen):
        self.data = gzip.compress(CONTENTS[name], 1, mtime=12345)
        self.wfile.write(self.body_from_start())

    def serve_none(self, name, seen):
        self.head(404, 9)
        self.wfile.write(b"not found")

    def serve_empty(self, name, seen):
        self.head(200, 0)

    def serve_understates(self, name, seen):
        """Says that the file ends a little earlier than it does."""
        self.head(200, len(self.data) - 100)
        self.wfile.write(self.data)
        self.close_connection = True

    def serve_moved(self, name, seen):
        self.head(302, 0, [("Location", f"/good/{name}.gz")])

    def serve_loop(self, name, seen):
        self.head(302, 0, [("Location", f"/loop/{name}.gz")])

    def serve_tofile(self, name, seen):
        self.head(302, 0, [("Location", "file:///etc/passwd")])

    def serve_announced(self, name, seen):
        self.head(200, 10 ** 12)

    def serve_endless(self, name, seen):
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"\0" * 65536)
        except OSError:
            self.close_connection = True

    def serve_slow(self, name, seen):
        """The rest in twenty pieces over about three seconds."""
        if name != BIG:
            return self.serve_good(name, seen)
        body = self.body_from_start()
        for i in range(20):
            self.wfile.write(body[len(body) * i // 20:len(body) * (i + 1) // 20])
            self.wfile.flush()
            time.sleep(0.15)

    def serve_stalls(self, name, seen):
        if name != BIG:
            return self.serve_good(name, seen)
        self.wfile.write(self.body_from_start()[:1000 if self.start == 0 else 0])
        self.wfile.flush()
        Mirror.release.wait(30)
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # clients that hang up are part of the test


class DownloadTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(("127.0.0.1", 0), Mirror)
        cls.url = f"http://127.0.0.1:{cls.server.server_address[1]}/"
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        Mirror.release.set()
        cls.server.shutdown()
        cls.server.server_close()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / "root"
        Mirror.requests.clear()

    def start(self, *mirrors, preexec=None, **more):
        files = [{"name": n, "packed_md5": md5(PACKED[n]), "contents_md5": md5(CONTENTS[n]), "bytes": len(CONTENTS[n])}
                 for n in NAMES]
        known = {"type": "tiny", "files": files, "mirrors": []}
        request = {"catalog": [known], "type": "tiny", "root": str(self.root), "mirrors": [self.url + m for m in mirrors]}
        path = self.folder / f"request-{random.random()}.json"
        path.write_text(json.dumps(request | more))
        environment = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and k != "DTORCH_DATA"}
        process = subprocess.Popen([PROBE, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                   preexec_fn=preexec)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def finish(self, process):
        out, self.log = process.communicate(timeout=100)
        self.assertIn(process.returncode, (0, 1), self.log)
        return json.loads(out)

    def probe(self, *mirrors, **more):
        return self.finish(self.start(*mirrors, **more))

    def assert_whole(self, result):
        self.assertEqual(result.get("type"), "tiny", f"{result} {self.log}")
        for name, path in zip(NAMES, result["paths"]):
            self.assertEqual(gzip.decompress(pathlib.Path(path).read_bytes()), CONTENTS[name])
        self.assertEqual(sorted(os.listdir(self.root)), sorted([".dtorch.lock"] + [n + ".gz" for n in NAMES]))

    def assert_nothing_left(self):
        self.assertEqual(os.listdir(self.root), [".dtorch.lock"])

    def ranges(self, behaviour, name=BIG):
        return [entry[2] for entry in Mirror.requests if entry[:2] == (behaviour, name)]

    def test_brings_all_files_and_asks_no_more_the_next_time(self):
        self.assert_whole(self.probe("good"))
        self.assertEqual(len(Mirror.requests), 4)
        self.assert_whole(self.probe("good"))
        self.assertEqual(len(Mirror.requests), 4)

    def test_only_the_missing_files_are_fetched(self):
        self.probe("good")
        (self.root / "t10k-labels.gz").unlink()
        Mirror.requests.clear()
        self.assert_whole(self.probe("good"))
        self.assertEqual([entry[1] for entry in Mirror.requests], ["t10k-labels"])

    def test_a_cut_transfer_goes_on_where_it_stopped(self):
        self.assert_whole(self.probe("cut"))
        third = len(PACKED[BIG]) // 3 + 1
        self.assertEqual(self.ranges("cut"), [None, f"bytes={third}-", f"bytes={2 * third}-"])
        self.assertIn("going on at", self.log)

    def test_a_killed_download_goes_on_in_the_next_run(self):
        process = self.start("slow")
        part = self.root / (BIG + ".gz.part")
        deadline = time.monotonic() + 30
        while not (part.exists() and part.stat().st_size > 50_000):
            self.assertLess(time.monotonic(), deadline, "nothing arrives")
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        size = part.stat().st_size
        self.assertLess(size, len(PACKED[BIG]))
        self.assert_whole(self.probe("good"))
        self.assertEqual(self.ranges("good"), [f"bytes={size}-"])

    def test_another_mirror_goes_on_with_the_part(self):
        self.root.mkdir()
        (self.root / (BIG + ".gz.part")).write_bytes(PACKED[BIG][:77_777])
        self.assert_whole(self.probe("none", "good"))
        self.assertEqual(self.ranges("good"), ["bytes=77777-"])

    def test_a_server_that_ignores_ranges_starts_again(self):
        self.assert_whole(self.probe("noranges"))
        self.assertEqual(self.ranges("noranges"), [None, f"bytes={len(PACKED[BIG]) // 2}-"])

    def test_a_server_that_answers_another_range_is_left(self):
        self.assert_whole(self.probe("wrongrange", "good"))
        self.assertEqual(len(self.ranges("wrongrange")), 2)

    def test_a_part_of_something_else_is_found_out_and_replaced(self):
        self.root.mkdir()
        (self.root / (BIG + ".gz.part")).write_bytes(b"rubbish" * 1000)
        self.assert_whole(self.probe("good"))
        self.assertEqual(self.ranges("good"), ["bytes=7000-", None])

    def test_a_part_that_was_complete_is_taken(self):
        self.root.mkdir()
        (self.root / (BIG + ".gz.part")).write_bytes(PACKED[BIG])
        self.assert_whole(self.probe("good"))
        self.assertEqual(self.ranges("good"), [f"bytes={len(PACKED[BIG])}-"])

    def test_a_wrong_file_is_refused_and_the_next_mirror_tried(self):
        self.assert_whole(self.probe("wrong", "html", "good"))

    def test_only_wrong_files_are_an_error_with_both_sums(self):
        result = self.probe("wrong", "html")
        self.assertEqual(result["kind"], "data")
        self.assertIn(f"{self.url}wrong/{BIG}.gz: expected MD5 {md5(PACKED[BIG])}", result["message"])
        self.assertIn("found " + md5(b"<html>Please log in to the network</html>"), result["message"])
        self.assert_nothing_left()

    def test_the_right_contents_packed_anew_are_right(self):
        self.assert_whole(self.probe("repacked"))

    def test_says_what_was_the_matter_with_each_mirror(self):
        result = self.probe("none", "empty", "loop", "tofile")
        self.assertEqual(result["kind"], "lost")
        for reason in [f"none/{BIG}.gz: HTTP status 404", f"empty/{BIG}.gz: an empty file", f"loop/{BIG}.gz: Maximum (5) redirects", f"tofile/{BIG}.gz: Protocol"]:
            self.assertIn(reason, result["message"])
        self.assert_nothing_left()

    def test_follows_redirects(self):
        self.assert_whole(self.probe("moved"))

    def test_refuses_more_than_the_file_can_be(self):
        result = self.probe("announced", "endless")
        self.assertEqual(result["kind"], "lost")
        self.assertIn(f"announced/{BIG}.gz: more than the expected", result["message"])
        self.assertIn(f"endless/{BIG}.gz: more than the expected", result["message"])

    def test_a_mirror_that_lies_about_the_length_is_found_out(self):
        result = self.probe("understates")
        self.assertEqual(result["kind"], "data")
        self.assertIn("expected MD5 ", result["message"])
        self.assert_nothing_left()

    def test_what_such_a_mirror_still_sends_is_no_answer_to_the_next_question(self):
        self.assert_whole(self.probe("understates", "good"))

    def test_leaves_a_mirror_that_stalls(self):
        began = time.monotonic()
        self.assert_whole(self.probe("stalls", "good", stall_ms=1000))
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual(self.ranges("stalls"), [None, "bytes=1000-"])
        self.assertEqual(self.ranges("good"), ["bytes=1000-"])

    def test_two_processes_at_once_download_once(self):
        first = self.start("slow")
        second = self.start("slow")
        results = []
        logs = []
        for process in (first, second):
            results.append(self.finish(process))
            logs.append(self.log)
        for result in results:
            self.assert_whole(result)
        self.assertEqual(sorted(entry[1] for entry in Mirror.requests), sorted(NAMES))
        waiting = [log for log in logs if "is downloading tiny to" in log and "waiting for it" in log]
        self.assertEqual(len(waiting), 1, logs)
        self.assertRegex(waiting[0], rf"process ({first.pid}|{second.pid}) on ")

    def test_a_waiting_process_takes_over_when_the_other_dies(self):
        first = self.start("stalls")
        deadline = time.monotonic() + 30
        while not self.ranges("stalls"):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        second = self.start("good")
        time.sleep(0.3)
        first.kill()
        self.assert_whole(self.finish(second))

    def test_tells_progress_at_most_once_a_second(self):
        self.assert_whole(self.probe("slow"))
        lines = re.findall(rf"tiny {BIG}.gz: ([0-9.]+) of ([0-9.]+) MB", self.log)
        self.assertGreaterEqual(len(lines), 1, self.log)
        self.assertLessEqual(len(lines), 8, self.log)
        self.assertEqual(lines[0][1], f"{len(PACKED[BIG]) / 1e6:.1f}")

    def test_a_full_disk_is_said_and_what_came_is_kept(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        result = self.probe("good", preexec=small_files)
        self.assertEqual(result["kind"], "cannot_write")
        self.assertIn(f"{BIG}.gz.part: write: ", result["message"])
        self.assertEqual((self.root / (BIG + ".gz.part")).stat().st_size, 100_000)
        self.assert_whole(self.probe("good"))
        self.assertEqual(self.ranges("good")[-1], "bytes=100000-")

    def mounted(self, read_only=False):
        """What makes root a small disk of the probe's own."""
        self.root.mkdir()

        def mount():
            libc = ctypes.CDLL(None, use_errno=True)
            made = libc.unshare(CLONE_NEWNS) == 0
            libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)  # refused in a chroot, where it is not needed
            flags = MS_RDONLY if read_only else 0
            if not made or libc.mount(b"dtorch-test", os.fsencode(self.root), b"tmpfs", flags, b"size=96k") != 0:
                raise OSError(ctypes.get_errno(), "a disk for the test")
        return mount

    @unittest.skipUnless(os.geteuid() == 0, "mounting needs root")
    def test_a_disk_that_is_really_full_is_said(self):
        result = self.probe("good", preexec=self.mounted())
        self.assertEqual(result["kind"], "cannot_write")
        self.assertIn(f"{BIG}.gz.part: write: No space left on device", result["message"])

    @unittest.skipUnless(os.geteuid() == 0, "mounting needs root")
    def test_a_root_that_cannot_be_written_is_said(self):
        result = self.probe("good", preexec=self.mounted(read_only=True))
        self.assertIn(result["kind"], ("cannot_create", "cannot_write"))
        self.assertIn(f"{self.root}/", result["message"])
        self.assertRegex(result["message"], "Read-only file system|Permission denied")

    def test_a_root_that_cannot_be_made_is_said(self):
        (self.folder / "file").write_text("")
        self.root = self.folder / "file" / "root"
        result = self.probe("good")
        self.assertEqual(result["kind"], "cannot_create")
        self.assertIn("file/root", result["message"])

    def test_nothing_answers(self):
        began = time.monotonic()
        result = self.probe(mirrors=["http://127.0.0.1:1/", "http://mirror.invalid/"])
        self.assertEqual(result["kind"], "lost")
        self.assertIn("http://127.0.0.1:1/", result["message"])
        self.assertIn("mirror.invalid", result["message"])
        self.assertLess(time.monotonic() - began, 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
