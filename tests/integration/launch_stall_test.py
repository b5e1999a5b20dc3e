"""Ranks, helpers and launchers that somebody stops (kill -STOP), results that do not arrive, ranks that do not die."""
import ctypes
import os
import pathlib
import signal
import time

import dtorch_testing
from dtorch_testing import FAKE_DTORCH, SLACK, DtorchTest, Running, fake_ranks, wait_until

SPEC = """
version: 1
name: test
world_size: {world}
init_method: {method}
dataset: mnist
model: {{type: mlp, layers: [784, 16, 10]}}
timeouts: {{rendezvous: 10s, init: {init}, collective: {collective}, shutdown: {shutdown}}}
"""
PTRACE_SEIZE, PTRACE_CONT = 0x4206, 7


class StallTest(DtorchTest):
    def setUp(self):
        self.folder = self.new_folder()

    def start(self, *arguments, world=2, method="tcp://127.0.0.1:0", init="5min", collective="1s", shutdown="5s", **scripts):
        spec = pathlib.Path(self.folder, "job.yaml")
        spec.write_text(SPEC.format(world=world, method=method, init=init, collective=collective, shutdown=shutdown))
        return Running([FAKE_DTORCH, "run", spec, "--json", *arguments], env=fake_ranks(scripts), cwd=self.folder)

    def ranks(self, job, count):
        wait_until(lambda: len(job.ranks()) == count, 10, f"{count} ranks run")
        time.sleep(0.3)
        return [pid for _, pid in sorted(job.ranks().items())]


class Stopped(StallTest):
    def assert_noticed(self, result, stopped, pattern):
        self.assert_exit(result, 124)
        self.assertRegex(self.error_of(result)["message"], pattern)
        self.assertLess(time.monotonic() - stopped, 1 + 1 + 3 * SLACK)
        self.assert_nothing_left(result.mark, 0.5)

    def test_the_only_rank(self):
        with self.start(world=1, rank="train") as job:
            os.kill(self.ranks(job, 1)[0], signal.SIGSTOP)
            self.assert_noticed(job.wait(20), time.monotonic(), r"rank 0 \(pid \d+\) is stopped")

    def test_all_ranks(self):
        with self.start(rank="train") as job:
            for pid in self.ranks(job, 2):
                os.kill(pid, signal.SIGSTOP)
            stopped = time.monotonic()
            result = job.wait(20)
        self.assert_noticed(result, stopped, r"rank 0 \(pid \d+\) is stopped.*rank 1 \(pid \d+\) is stopped")
        self.assertEqual(self.error_of(result)["missing_ranks"], [0, 1])

    def test_the_helper(self):
        for half in (min, max):  # the watchdog, and what serves the store
            with self.start(rank="train") as job:
                self.ranks(job, 2)
                wait_until(lambda: len(job.others(" __agent")) == 2, 10, "both halves of the helper run")
                os.kill(half(job.others(" __agent")), signal.SIGSTOP)
                stopped = time.monotonic()
                result = job.wait(20)
            self.assert_noticed(result, stopped, r"helper process \(pid \d+\).* is stopped")

    def test_for_a_moment_is_no_failure(self):
        with self.start(world=1, rank="sleep:2", collective="3s") as job:
            pid = self.ranks(job, 1)[0]
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1)
            os.kill(pid, signal.SIGCONT)
            self.assert_exit(job.wait(20), 0)

    def test_the_whole_job_goes_on_where_it_was(self):
        with self.start(rank="sleep:2", collective="1s") as job:
            self.ranks(job, 2)
            everybody = [job.pid, *job.others()]
            for pid in everybody:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(3)
            for pid in everybody:
                os.kill(pid, signal.SIGCONT)
            self.assert_exit(job.wait(20), 0)


class Results(StallTest):
    def test_wait_for_a_launcher_that_is_stopped(self):
        with self.start(world=1, rank="sleep:1,steps:10000") as job:
            self.ranks(job, 1)
            os.kill(job.pid, signal.SIGSTOP)
            time.sleep(6)  # longer than a rank once waited
            os.kill(job.pid, signal.SIGCONT)
            result = job.wait(20)
        self.assert_exit(result, 0)
        self.assertEqual(len(result.events("result")), 1)
        self.assertRegex(result.err, r"\[rank 0\] warning: \d+ records were left out")

    def test_that_do_not_arrive_are_an_error(self):
        with self.start(rank="steps:3", FAKE_NO_RESULT="1") as job:
            result = job.wait(20)
        self.assert_exit(result, 69)
        self.assertIn("its result did not reach the launcher", self.error_of(result)["message"])


class PreFlight(StallTest):
    def test_has_its_limit_with_several_nodes_too(self):
        method = f"tcp://127.0.0.1:{dtorch_testing.free_port()}"
        with self.start("--nnodes", 2, "--node-rank", 0, method=method, init="1s", rank="train", FAKE_AGENT="slow") as job:
            result = job.wait(20)
        self.assert_exit(result, 124)
        self.assertIn("pre-flight", self.error_of(result)["message"])


class Stopping(StallTest):
    def stop(self, script):
        """How a job ends that is asked to stop, where rank 1 does this a moment later."""
        go = os.path.join(self.new_folder(), "go")
        with self.start(rank0="train", rank1=f"await:{go},{script}", shutdown="10s") as job:
            self.ranks(job, 2)
            job.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            pathlib.Path(go).touch()
            return job.wait(9)

    def test_tells_of_ranks_that_crash_meanwhile(self):
        for script, code in (("raise:11", 69), ("fail:training", 70), ("exit:5", 69)):
            result = self.stop(script)
            self.assert_exit(result, code)
            self.assertEqual(self.error_of(result)["rank"], 1)
            self.assert_nothing_left(result.mark, 0.5)

    def test_is_no_failure_where_ranks_only_miss_each_other(self):
        for script in ("fail:lost", "fail:timeout", "consequence", "raise:15", "exit:143"):
            self.assert_exit(self.stop(script), 143)


class Unkillable(StallTest):
    def test_ranks_are_left_behind_with_a_warning(self):
        # A dead process that a tracer has not looked at yet cannot be reaped, much as one that hangs in a device.
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long] * 4
        with self.start(rank="train") as job:
            pids = self.ranks(job, 2)
            self.assertEqual(libc.ptrace(PTRACE_SEIZE, pids[0], 0, 0), 0, os.strerror(ctypes.get_errno()))
            try:
                os.kill(pids[1], signal.SIGKILL)
                killed = time.monotonic()
                result = job.wait(30)
            finally:
                os.waitpid(pids[0], 0)
        self.assertLess(time.monotonic() - killed, 12 * SLACK)
        self.assert_exit(result, 69)
        self.assertEqual(self.error_of(result)["rank"], 1)
        self.assertRegex(result.err, r"rank 0 \(pid \d+\) was killed but does not go: a debugger or tracer holds it")


if __name__ == "__main__":
    dtorch_testing.main()
