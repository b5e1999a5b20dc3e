"""What the launcher writes: results that cannot be written, readers that pause or go away, closed descriptors."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import time

import dtorch_testing
from dtorch_testing import DTORCH, FAKE_DTORCH, DtorchTest, Running, run, wait_until

SPEC = """
version: 1
name: test
world_size: 2
init_method: tcp://127.0.0.1:0
dataset: mnist
model: {type: mlp, layers: [784, 16, 10]}
timeouts: {rendezvous: 10s, shutdown: 1s}
"""


class OutputTest(DtorchTest):
    def setUp(self):
        self.folder = self.new_folder()
        self.spec = os.path.join(self.folder, "job.yaml")
        pathlib.Path(self.spec).write_text(SPEC)

    def job(self, *arguments, **options):
        scripts = {f"FAKE_{name[4:] or 'RANK'}": options.pop(name) for name in list(options) if name.startswith("rank")}
        return Running([FAKE_DTORCH, "run", self.spec, *arguments], env=scripts, cwd=self.folder, **options)

    def full(self):
        device = open("/dev/full", "wb")
        self.addCleanup(device.close)
        return device

    def assert_unwritten(self, result, why="No space left on device"):
        self.assert_exit(result, 74)
        self.assertIn("error: cannot write to standard output: ", result.err)
        self.assertIn(why, result.err)
        self.assert_nothing_left(result.mark, 0.5)


class Unwritten(OutputTest):
    def test_results_of_a_job(self):
        for arguments in ([], ["--json"]):
            with self.job(*arguments, rank="steps:3", stdout=self.full()) as job:
                self.assert_unwritten(job.wait(30))

    def test_does_not_hide_why_the_job_failed(self):
        with self.job("--json", rank0="train", rank1="steps:3,raise:9", stdout=self.full()) as job:
            result = job.wait(30)
        self.assert_exit(result, 69)
        self.assertIn("cannot write to standard output", result.err)
        self.assertIn("was killed by SIGKILL", result.err)

    def test_answers_of_the_command_line(self):
        for argument in ("--help", "--version", "run --help"):
            self.assert_unwritten(run([FAKE_DTORCH, *argument.split()], stdout=self.full()))

    def test_what_programs_print(self):
        command = [FAKE_DTORCH, "launch", "-n", "1", "--", "sh", "-c"]
        self.assert_unwritten(run([*command, "echo hello"], stdout=self.full()))
        result = run([*command, "echo hello; exit 3"], stdout=self.full())
        self.assert_exit(result, 3)

    def test_a_file_that_may_not_grow(self):
        with tempfile.TemporaryFile() as file:
            limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            self.assert_unwritten(run([FAKE_DTORCH, "--help"], stdout=file, preexec=limit), "File too large")

    def test_closed_descriptors(self):
        for closed in ((1,), (0, 1), (0, 1, 2), (0,), (2,)):
            def close(descriptors=closed):
                for fd in descriptors:
                    os.close(fd)
            result = run([FAKE_DTORCH, "run", self.spec, "--json"], env={"FAKE_RANK": "steps:3,print:hello"},
                         cwd=self.folder, preexec=close)
            self.assert_exit(result, 74 if 1 in closed else 0)
            self.assert_nothing_left(result.mark, 0.5)

    def test_readers_that_go_away_are_no_error(self):
        for command in (["--help"], ["launch", "-n", "2", "--", "seq", "100000"]):
            with Running([FAKE_DTORCH, *command], stdout=subprocess.PIPE) as job:
                job.process.stdout.close()
                self.assert_exit(job.wait(30), 0)


class PausedReader(OutputTest):
    """Nobody reads standard output until the test does; a pipe holds 64 KiB."""

    def ended(self, job):
        wait_until(lambda: job.others(" __agent"), 20, "the job runs")
        wait_until(lambda: not job.others(), 20, "all ranks and helpers have ended")

    def events(self, job):
        lines = job.process.stdout.read().decode().splitlines()
        job.process.stdout.close()
        return [json.loads(line) for line in lines]

    def test_does_not_keep_a_dead_rank_from_being_noticed(self):
        script = ",".join(["steps:200,sleep:0.02"] * 60)  # slow enough for the launcher, too much for a MiB
        with self.job("--json", rank0="train", rank1=script + ",raise:9", stdout=subprocess.PIPE) as job:
            self.ended(job)
            self.assertIsNone(job.process.poll(), "what waits is kept")
            events = self.events(job)
            self.assert_exit(job.wait(10), 69)
        self.assertEqual([event["event"] for event in events if event["event"] != "step"], ["plan", "left_out", "error"])
        steps = sum(event["event"] == "step" for event in events)
        self.assertGreater(steps, 1000)
        self.assertLessEqual(steps + events[-2]["steps"], 12000)

    def test_does_not_keep_a_request_to_stop_from_being_heard(self):
        with self.job("--json", rank0="train", rank1="steps:3000,train", stdout=subprocess.PIPE) as job:
            wait_until(lambda: len(job.ranks()) == 2, 10, "the ranks run")
            time.sleep(1)
            job.process.send_signal(signal.SIGTERM)
            self.ended(job)
            self.assertEqual(self.events(job)[-1]["kind"], "interrupted")
            self.assert_exit(job.wait(10), 143)

    def test_holds_up_programs_that_print_and_loses_nothing(self):
        printer = "if [ $RANK = 0 ]; then seq 2000000; else sleep 2; exit 3; fi"
        with Running([FAKE_DTORCH, "launch", "-n", "2", "--", "sh", "-c", printer], stdout=subprocess.PIPE) as job:
            self.ended(job)
            lines = job.process.stdout.read().decode().splitlines()
            job.process.stdout.close()
            self.assert_exit(job.wait(10), 3)
        self.assertGreater(len(lines), 1000)
        self.assertLess(len(lines), 1000000, "the program went on without a reader")
        self.assertEqual(lines[:-1], [f"[rank 0] {number}" for number in range(1, len(lines))])

class Messages(OutputTest):
    def test_json_has_an_event_for_mistyped_commands(self):
        result = run([FAKE_DTORCH, "run", self.spec, "--json", "--bogus"])
        self.assert_exit(result, 64)
        self.assertEqual([(event["kind"], event["exit_code"]) for event in result.events("error")], [("usage", 64)])
        result = run([FAKE_DTORCH, "launch", "-n", "x", "--", "program", "--json"])
        self.assertEqual((result.code, result.out), (64, ""), "the program's own arguments say nothing of ours")

    def test_colour_reaches_errors_before_the_job(self):
        for flags in (["--color=always"], ["--color", "always"]):
            self.assertIn("\x1b[1;31merror:", run([FAKE_DTORCH, "run", "--bogus", *flags]).err)
        self.assertNotIn("\x1b", run([FAKE_DTORCH, "run", "--bogus"]).err)

    def test_ranks_print_to_their_logs_only(self):
        with self.job("--log-dir", "logs", rank="print:hello") as job:
            result = job.wait(30)
        self.assert_exit(result, 0)
        self.assertNotIn("hello", result.err)
        for rank in (0, 1):
            self.assertEqual(pathlib.Path(self.folder, "logs", f"rank{rank}.log").read_text(), "hello\n")

    def test_a_log_that_cannot_be_written_is_an_error(self):
        os.mkdir(os.path.join(self.folder, "logs"))
        os.symlink("/dev/full", os.path.join(self.folder, "logs", "rank1.log"))
        with self.job("--log-dir", "logs", rank="print:hello") as job:
            result = job.wait(30)
        self.assert_exit(result, 74)
        self.assertIn("cannot write the log logs/rank1.log", result.err)

    def test_a_killed_helper_is_named_plainly(self):
        with self.job("--json", rank="train") as job:
            wait_until(lambda: len(job.others(" __agent")) == 2 and len(job.ranks()) == 2, 10, "everything runs")
            time.sleep(0.3)
            os.kill(max(job.others(" __agent")), signal.SIGKILL)
            result = job.wait(30)
        self.assert_exit(result, 69)
        self.assertRegex(result.err, r"(?m)^error: the job's helper process \(pid \d+\) on \S+ was killed by SIGKILL\n")
        self.assert_nothing_left(result.mark, 0.5)

    def test_a_removed_current_directory(self):
        folder = self.new_folder()
        inside = os.path.join(folder, "inside")
        os.mkdir(inside)
        with Running([FAKE_DTORCH, "run", self.spec], cwd=inside, preexec=lambda: os.rmdir(inside)) as job:
            result = job.wait(30)
        self.assert_exit(result, 71)
        self.assertIn("error: the current directory is gone", result.err)

    def test_too_little_memory(self):
        if os.environ.get("DTORCH_SANITIZE"):
            return  # its shadow alone needs terabytes of addresses
        for size in (100 << 20, 400 << 20):  # too little to map libtorch; too little to start it
            limit = lambda size=size: resource.setrlimit(resource.RLIMIT_AS, (size, size))
            result = run([DTORCH, "run", self.spec, "--dry-run"], preexec=limit)
            self.assert_exit(result, 71)
            self.assertRegex(result.err, "error: .*memory")
            self.assertNotIn("terminate called", result.err)
            self.assert_nothing_left(result.mark, 0.5)


if __name__ == "__main__":
    dtorch_testing.main()
