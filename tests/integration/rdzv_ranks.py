"""Starts rdzv_rank processes and reads what they report; for rdzv_*.py."""
import json
import os
import socket
import subprocess
import time

RANK = os.path.join(os.environ["DTORCH_BUILD"], "rdzv_rank")
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_", "SLURM", "OMPI_",
                      "PMI", "MV2_", "JOB_COMPLETION_INDEX", "TORCH_CPP_LOG_LEVEL", "DTORCH_LOG")


def free_port(host="127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class Rank:
    """One process; result() waits for its report."""

    def __init__(self, init, rank=None, world=None, timeout_ms=60000, environment=None, prefix=(), **options):
        arguments = [*prefix, RANK, "--init", init, "--timeout-ms", str(timeout_ms)]
        if rank is not None:
            arguments += ["--rank", str(rank)]
        if world is not None:
            arguments += ["--world", str(world)]
        for name, value in options.items():
            arguments += ["--" + name.replace("_", "-"), str(value)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
        clean.update(environment or {})
        self.started = time.monotonic()
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=clean)

    def first_line(self):
        return json.loads(self.process.stdout.readline())

    def until_waiting(self):
        """Returns once the process has joined and says whom it waits for."""
        for line in self.process.stderr:
            if "joining at" in line:
                return
        raise AssertionError(f"ended without waiting: {self.process.communicate()}")

    def result(self, limit=90):
        try:
            out, self.stderr = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        self.seconds = time.monotonic() - self.started
        lines = out.strip().splitlines()
        assert lines, f"no report, exit {self.process.returncode}, stderr: {self.stderr}"
        report = json.loads(lines[-1])
        text = out + self.stderr
        assert "Exception raised from" not in text and "frame #" not in text, text
        return report

    def kill(self):
        self.process.kill()
        self.process.communicate()


def results(ranks):
    return [rank.result() for rank in ranks]


def run(tests):
    """Runs every function named test_* of a module's globals, telling each by name."""
    for name, test in sorted(tests.items()):
        if name.startswith("test_") and callable(test):
            start = time.monotonic()
            test()
            print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
