"""What the tests that drive dtorch share: running it with a time limit, finding what it left behind, free ports."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

BUILD = pathlib.Path(os.environ.get("DTORCH_BUILD", "build")).resolve()
SOURCE = pathlib.Path(os.environ.get("DTORCH_SOURCE", ".")).resolve()
SHARED = pathlib.Path(os.environ.get("DTORCH_SHARED", SOURCE / ".." / "shared")).resolve()
DTORCH = os.environ.get("DTORCH", str(BUILD / "dtorch"))
FAKE_DTORCH = str(BUILD / "fake" / "dtorch")  # with tests/integration/fake_engine.cpp for libdtorch.so
MARK = "DTORCH_TEST_MARK"

# Machines that run tests are slow and busy; what a test promises in seconds is given this much more.
SLACK = float(os.environ.get("DTORCH_TEST_SLACK", "1.5"))


def free_port():
    """A TCP port of 127.0.0.1 that nobody uses just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds, what):
    """Polls until the condition holds and returns its value; an AssertionError that names `what` otherwise."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")


def marked_processes(mark):
    """{pid: command line} of living processes whose environment carries the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if wanted in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                command = pathlib.Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(entry)] = command.strip()
        except OSError:
            continue
    found.pop(os.getpid(), None)
    return found


class Result:
    """How a finished command went: code, out, err, seconds."""

    def __init__(self, code, out, err, seconds, mark):
        self.code, self.out, self.err, self.seconds, self.mark = code, out, err, seconds, mark

    def __repr__(self):
        return f"exit {self.code} after {self.seconds:.2f} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    def events(self, name=None):
        """The JSON lines of stdout, or those of one event."""
        lines = [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]
        return [line for line in lines if name is None or line.get("event") == name]


class Running:
    """A command that runs, whose processes can be found by a mark in their environment. A context manager that kills them."""

    def __init__(self, arguments, env=None, cwd=None, stdin=subprocess.DEVNULL, stdout=None, stderr=None,
                 preexec=None):
        self.mark = uuid.uuid4().hex
        environment = dict(os.environ, **{MARK: self.mark}, **(env or {}))
        self.out = tempfile.TemporaryFile() if stdout is None else None
        self.err = tempfile.TemporaryFile() if stderr is None else None
        self.start = time.monotonic()
        self.process = subprocess.Popen([str(a) for a in arguments], env=environment, cwd=cwd, stdin=stdin,
                                        stdout=self.out or stdout, stderr=self.err or stderr, preexec_fn=preexec)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill_all()

    def kill_all(self):
        if self.process.poll() is None:
            self.process.kill()
            deadline = time.monotonic() + 2  # its watchdog tidies up
            while self.others() and time.monotonic() < deadline:
                time.sleep(0.01)
        for pid in self.others():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    @property
    def pid(self):
        return self.process.pid

    def others(self, pattern=""):
        """{pid: command line} of its living descendants, wherever they went, whose command line matches."""
        found = marked_processes(self.mark)
        found.pop(self.pid, None)
        return {pid: command for pid, command in found.items() if re.search(pattern, command)}

    def ranks(self):
        """{rank: pid} of dtorch's own ranks that run now."""
        found = {}
        for pid in self.others(" __rank "):
            try:
                variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found.update({int(entry[5:]): pid for entry in variables if entry.startswith(b"RANK=")})
        return found

    def text(self, stream):
        stream.seek(0)
        return stream.read().decode(errors="replace")

    def wait(self, seconds=30):
        """Waits for its end; kills everything and raises AssertionError if it takes longer."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"still running after {seconds} s\n--- stdout\n{self.text(self.out)}\n--- stderr\n"
                                 f"{self.text(self.err)}") from None
        ended = time.monotonic() - self.start
        out = self.text(self.out) if self.out else ""
        err = self.text(self.err) if self.err else ""
        for stream in filter(None, (self.out, self.err)):
            stream.close()
        return Result(code, out, err, ended, self.mark)


def run(arguments, seconds=30, **options):
    """Runs a command to its end."""
    with Running(arguments, **options) as running:
        return running.wait(seconds)


def overrides(settings):
    """The arguments that set path=value."""
    return [part for setting in settings for part in ("-s", setting)]


def fake_ranks(scripts):
    """The environment in which the stand-in's ranks do as told: rank="..." all of them, rank1="..." one; NAMES="..." as they are."""
    env = {f"FAKE_{name[4:] or 'RANK'}": script for name, script in scripts.items() if name.startswith("rank")}
    return {**env, **{name: value for name, value in scripts.items() if name.isupper()}}


class DtorchTest(unittest.TestCase):
    """Assertions about commands."""

    def error_of(self, result):
        """The one error event of --json."""
        errors = result.events("error")
        self.assertEqual(len(errors), 1, repr(result))
        return errors[0]

    def new_folder(self):
        """A folder that goes with the test."""
        folder = tempfile.TemporaryDirectory(prefix="dtorch-test-")
        self.addCleanup(folder.cleanup)
        return folder.name

    def assert_exit(self, result, code):
        self.assertEqual(result.code, code, repr(result))

    def assert_nothing_left(self, mark, seconds=2):
        """No process that carries the mark is alive, now or a moment later."""
        wait_until(lambda: not marked_processes(mark), seconds * SLACK, f"no process left behind: {marked_processes(mark)}")


def main():
    unittest.main(verbosity=2, argv=sys.argv)
