"""What is left when processes of a job are killed without a chance to clean up: nothing, after two seconds."""
import os
import pathlib
import random
import signal
import socket
import tempfile
import time

import dtorch_testing
from dtorch_testing import FAKE_DTORCH, SLACK, DtorchTest, Running, free_port, wait_until


def connects(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class KilledLauncher(DtorchTest):
    SCRIPT = ("trap '' TERM HUP INT; sleep 1001 & setsid sleep 1002 & (setsid sh -c 'setsid sleep 1003 & sleep 1004' &) ; "
              "sleep 1005")

    def start(self, port, folder, ranks=2):
        return Running([FAKE_DTORCH, "launch", "-n", ranks, "--master-port", port, "--", "bash", "-c", self.SCRIPT],
                       env={"TMPDIR": folder})

    def kill_and_check(self, job, port, folder):
        job.process.send_signal(signal.SIGKILL)
        job.process.wait()
        self.assert_nothing_left(job.mark, 2)
        self.assertFalse(connects(port), "the store's port is still open")
        wait_until(lambda: os.listdir(folder) == [], 2, "the scratch folder is gone")

    def test_leaves_nothing(self):
        port = free_port()
        with tempfile.TemporaryDirectory() as folder, self.start(port, folder) as job:
            wait_until(lambda: len(job.others("sleep 100[1-5]$")) >= 10, 20, "all grandchildren run")
            time.sleep(0.5)  # the store is served by now
            self.assertTrue(connects(port))
            self.kill_and_check(job, port, folder)

    def test_leaves_nothing_at_any_moment(self):
        seed = int(os.environ.get("DTORCH_TEST_SEED", time.time_ns() % 1_000_000))
        print("seed", seed)
        moments = random.Random(seed)
        for _ in range(15):
            port = free_port()
            with tempfile.TemporaryDirectory() as folder, self.start(port, folder, ranks=3) as job:
                time.sleep(moments.uniform(0, 0.15))
                self.kill_and_check(job, port, folder)

    def test_takes_jobs_inside_the_job_along(self):
        inner = f"{FAKE_DTORCH} launch -n 2 -- sh -c 'setsid sleep 1001 & setsid sleep 1002'"
        command = [FAKE_DTORCH, "launch", "-n", "1", "--", "sh", "-c", inner]
        with tempfile.TemporaryDirectory() as folder, Running(command, env={"TMPDIR": folder}) as job:
            wait_until(lambda: len(job.others("^sleep 100[12]$")) == 4, 20, "the inner job's grandchildren run")
            job.process.send_signal(signal.SIGKILL)
            job.process.wait()
            self.assert_nothing_left(job.mark, 2)
            wait_until(lambda: os.listdir(folder) == [], 2, "both scratch folders are gone")

    def test_does_not_touch_other_jobs(self):
        with Running([FAKE_DTORCH, "launch", "-n", "1", "--", "sleep", "1009"]) as other:
            wait_until(lambda: other.others("^sleep 1009$"), 20, "the other job runs")
            port = free_port()
            with tempfile.TemporaryDirectory() as folder, self.start(port, folder) as job:
                wait_until(lambda: len(job.others("sleep 100[1-5]$")) >= 10, 20, "all grandchildren run")
                self.kill_and_check(job, port, folder)
            self.assertTrue(other.others("^sleep 1009$"))


def memory_group(limit):
    """A memory cgroup of that many bytes, where this machine lets us make one."""
    for top, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = pathlib.Path(top, f"dtorch-test-{os.getpid()}")
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / name).exists():
            (folder / name).write_text(str(limit))
            return folder
        folder.rmdir()
    return None


class OutOfMemory(DtorchTest):
    def test_is_said_of_the_rank_that_the_kernel_killed(self):
        group = memory_group(300 << 20)
        if group is None:
            self.skipTest("no memory cgroup can be made here")
        code = "import os, time; keep = b'x' * (1 << 30) if os.environ['RANK'] == '1' else time.sleep(60)"
        with Running([FAKE_DTORCH, "launch", "-n", "2", "--", "python3", "-c", code],
                     preexec=lambda: (group / "cgroup.procs").write_text("0")) as job:
            result = job.wait(30)
        self.assert_exit(result, 128 + signal.SIGKILL)
        self.assertRegex(result.err, r"rank 1 .*was killed by SIGKILL, (probably )?by the kernel's out-of-memory killer")
        self.assert_nothing_left(result.mark, 1)
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 5, "the group is empty")
        group.rmdir()


class KilledHelper(DtorchTest):
    def test_ends_the_job(self):
        for number in (signal.SIGKILL, signal.SIGSEGV):
            with Running([FAKE_DTORCH, "launch", "-n", "2", "--", "sleep", "1000"]) as job:
                wait_until(lambda: len(job.others("^sleep 1000$")) == 2, 20, "both programs run")
                os.kill(min(job.others("__agent")), number)
                killed = time.monotonic()
                result = job.wait(10)
                self.assert_exit(result, 69)
                self.assertIn("helper process", result.err)
                self.assertLess(time.monotonic() - killed, 1 * SLACK)
                self.assert_nothing_left(result.mark, 0.2)

    def test_requests_to_stop_do_not_reach_it(self):
        with Running([FAKE_DTORCH, "launch", "-n", "1", "--", "sleep", "1"]) as job:
            wait_until(lambda: job.others("^sleep 1$"), 20, "the program runs")
            for pid in job.others("__agent"):
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    os.kill(pid, number)
            self.assert_exit(job.wait(10), 0)


if __name__ == "__main__":
    dtorch_testing.main()
