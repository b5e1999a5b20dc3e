"""What the tests of training share: job specs, running dtorch, exact losses."""
import json
import os
import subprocess
import tempfile
import unittest

from dtorch_testing import overrides

DTORCH = os.environ["DTORCH"]
SHARED = os.environ.get("DTORCH_SHARED", "")
FASHION = "/usr/share/datasets/fashion-mnist"
MNIST = os.path.join(SHARED, "data", "mnist")
# What `backend` may be on any machine.
BACKENDS = ("gloo", "tcp", "shm")
# The machine may be busy with other tests.
TIMEOUT = 240

SPEC = """\
version: 1
name: test
backend: gloo
init_method: tcp://127.0.0.1:0
world_size: 2
seed: 3
model: {type: mlp, layers: [784, 512, 10], activation: relu}
dataset: {type: fashion_mnist, root: /usr/share/datasets/fashion-mnist}
loader: {batch_size: 64, workers: 1}
sampler: {shuffle: true, drop_last: false}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.01}
epochs: 1
"""


class TrainingTest(unittest.TestCase):
    """A test with a folder of its own, which holds the job's spec."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="dtorch-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.spec = os.path.join(self.folder, "job.yaml")
        with open(self.spec, "w") as file:
            file.write(SPEC)

    def path(self, name):
        return os.path.join(self.folder, name)

    def environment(self, **extra):
        return dict(os.environ, OMP_NUM_THREADS="1", NO_COLOR="1", **extra)

    def command(self, *settings, options=()):
        return [DTORCH, "run", self.spec, *overrides(settings), *options]

    def start(self, *overrides, options=(), stdout=subprocess.PIPE, **environment):
        """A running job; stdout and stderr are pipes of text."""
        job = subprocess.Popen(self.command(*overrides, options=options), env=self.environment(**environment), text=True,
                               stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, cwd=self.folder)
        self.addCleanup(self.end, job)
        return job

    @staticmethod
    def end(job):
        if job.poll() is None:
            job.kill()
        job.communicate()

    def run_job(self, *overrides, options=(), code=0, **environment):
        """Runs a job to its end; its JSON events."""
        job = self.start(*overrides, options=("--json", *options), **environment)
        out, err = job.communicate(timeout=TIMEOUT)
        self.assertEqual(job.returncode, code, f"stdout:\n{out}\nstderr:\n{err}")
        return [json.loads(line) for line in out.splitlines()]

    def losses(self, *overrides, world_size=2):
        """Every rank's exact losses of a job, and its events."""
        file = self.path("losses")
        events = self.run_job(*overrides, options=("--losses", file))
        return [read_losses(f"{file}.{rank}") for rank in range(world_size)], events


def events_of(events, kind):
    return [event for event in events if event.get("event", event.get("type")) == kind]


def read_losses(path):
    """The lines as they are, so that a wrong form is seen too."""
    with open(path) as file:
        return file.read().split("\n")[:-1]


def steps_in(path):
    return len(read_losses(path))


def worst_relative_error(got, expected):
    return max(abs(float.fromhex(a) - float.fromhex(b)) / abs(float.fromhex(b)) for a, b in zip(got, expected))
