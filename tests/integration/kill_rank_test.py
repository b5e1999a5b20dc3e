"""Killed and stopped ranks of real training jobs: the right first cause in time, and nothing left behind.

DTORCH_KILLS sets how many random moments are tried (25; 200 for a thorough run), DTORCH_TEST_SEED repeats a run."""
import os
import pathlib
import random
import re
import signal
import socket
import time

import dtorch_testing
from dtorch_testing import DTORCH, SLACK, DtorchTest, Running, overrides, wait_until
from train_support import BACKENDS, SPEC


def listening_ports():
    """Local TCP ports that somebody listens on."""
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


class RealJobTest(DtorchTest):
    def setUp(self):
        self.folder = self.new_folder()
        self.scratch = os.path.join(self.folder, "tmp")
        os.mkdir(self.scratch)
        self.spec = os.path.join(self.folder, "job.yaml")
        pathlib.Path(self.spec).write_text(SPEC.replace("epochs: 1", "epochs: 100000"))

    def start(self, world, *settings):
        settings = overrides([f"world_size={world}", *settings])
        env = {"OMP_NUM_THREADS": "1", "TMPDIR": self.scratch}
        return Running([DTORCH, "run", self.spec, "--json", *settings], env=env, cwd=self.folder)

    def assert_tidy(self, result, before):
        self.assert_nothing_left(result.mark, 0.5)
        self.assertEqual(os.listdir("/dev/shm"), before[0])
        self.assertEqual(os.listdir(self.scratch), [])
        wait_until(lambda: listening_ports() <= before[1], 2, "no port is listened on any more")


class KilledRank(RealJobTest):
    def test_ends_the_job_within_a_second_at_any_moment(self):
        seed = int(os.environ.get("DTORCH_TEST_SEED", time.time_ns() % 1_000_000_000))
        count = int(os.environ.get("DTORCH_KILLS", 25))
        print("seed", seed, flush=True)
        moments = random.Random(seed)
        slowest = 0.0
        for number in range(count):
            before = os.listdir("/dev/shm"), listening_ports()
            world = moments.choice((2, 2, 3))
            backend = moments.choice(BACKENDS)
            with self.start(world, f"backend={backend}") as job:
                wait_until(lambda: len(job.ranks()) == world, 20, "all ranks run")
                time.sleep(moments.uniform(0, 1.5))  # from before they load libtorch to the midst of an epoch
                rank = moments.randrange(world)
                os.kill(job.ranks()[rank], signal.SIGKILL)
                killed = time.monotonic()
                result = job.wait(20)
                took = time.monotonic() - killed
            about = f"kill {number} (seed {seed}), rank {rank} of {world}, {backend}, {took:.2f} s: {result!r}"
            self.assertEqual(result.code, 69, about)
            error = self.error_of(result)
            self.assertEqual((error["rank"], error["signal"], error["host"]), (rank, 9, socket.gethostname()), about)
            self.assertLess(took, 1 * SLACK, about)
            self.assert_tidy(result, before)
            slowest = max(slowest, took)
        print(f"{count} kills, the slowest end after {slowest:.2f} s")


class StoppedRank(RealJobTest):
    def test_is_named_at_the_collectives_deadline(self):
        for rank, backend in [(0, "gloo"), *((1, backend) for backend in BACKENDS)]:
            before = os.listdir("/dev/shm"), listening_ports()
            with self.start(2, f"backend={backend}", "timeouts.collective=2s", "timeouts.shutdown=1s") as job:
                wait_until(lambda: '"event":"step"' in job.text(job.out), 20, "training has begun")
                os.kill(job.ranks()[rank], signal.SIGSTOP)
                stopped = time.monotonic()
                result = job.wait(30)
                took = time.monotonic() - stopped
            self.assert_exit(result, 124)
            self.assertGreater(took, 1.5)
            self.assertLess(took, 2 + 2.5 * SLACK, repr(result))
            message = self.error_of(result)["message"]
            self.assertIn(f"rank {rank} did not come", message)
            self.assertTrue(re.search(r"all_reduce|barrier", message), message)
            self.assert_tidy(result, before)


class KilledLauncher(RealJobTest):
    def test_leaves_nothing_within_two_seconds(self):
        before = os.listdir("/dev/shm"), listening_ports()
        with self.start(2) as job:
            wait_until(lambda: '"event":"step"' in job.text(job.out), 20, "training has begun")
            job.process.send_signal(signal.SIGKILL)
            job.process.wait()
            killed = time.monotonic()
            self.assert_nothing_left(job.mark, 2)
            wait_until(lambda: os.listdir(self.scratch) == [], 2, "the scratch folder is gone")
            self.assertEqual(os.listdir("/dev/shm"), before[0])
            wait_until(lambda: listening_ports() <= before[1], 2, "no port is listened on any more")
            self.assertLess(time.monotonic() - killed, 2 * SLACK)


if __name__ == "__main__":
    dtorch_testing.main()
