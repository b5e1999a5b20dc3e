"""dtorch launch: any program once a rank, with torchrun's environment, output, exit codes and restarts."""
import json
import os
import pathlib
import pty
import select
import signal
import socket
import tempfile
import time

import dtorch_testing
from dtorch_testing import FAKE_DTORCH, SLACK, DtorchTest, Running, free_port, run, wait_until


def launch(*arguments, **options):
    return run([FAKE_DTORCH, "launch", *arguments], **options)


# Rank 0 ends, a process group of somebody else's gets its number, and then the job ends.
STRANGER = """
import os, pathlib, subprocess, sys, time
os.mkfifo("go")
script = "test $RANK = 1 && exec cat go; echo $$ > pid"
job = subprocess.Popen([sys.argv[1], "launch", "-n", "2", "--", "sh", "-c", script])
while not os.path.exists("pid") or not pathlib.Path("pid").read_text().strip() or os.path.exists("/proc/" + pathlib.Path("pid").read_text().strip()):
    time.sleep(0.01)
number = int(pathlib.Path("pid").read_text())
time.sleep(1)
for _ in range(100):
    pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if stranger.pid == number:
        break
    stranger.kill()
    stranger.wait()
assert stranger.pid == number, "another process was quicker each time"
open("go", "w").close()
assert job.wait() == 0
time.sleep(0.2)
print("the stranger lives" if stranger.poll() is None else "the stranger was killed")
stranger.kill()
"""


class Environment(DtorchTest):
    def variables(self, *arguments, env=None):
        code = ("import os, json; print(json.dumps({k: v for k, v in os.environ.items() if k.split('_')[0] in "
                "('RANK', 'LOCAL', 'WORLD', 'GROUP', 'ROLE', 'MASTER', 'TORCHELASTIC', 'OMP')}))")
        result = launch(*arguments, "--", "python3", "-c", code, env=env)
        self.assert_exit(result, 0)
        lines = [line.split("] ", 1)[1] for line in sorted(result.out.splitlines())]
        return [json.loads(line) for line in lines]

    def test_is_torchruns(self):
        ranks = self.variables("-n", "3", "--rdzv-id", "job7", "--max-restarts", "2", env={"OMP_NUM_THREADS": "5"})
        self.assertEqual(len(ranks), 3)
        for rank, found in enumerate(ranks):
            port, error_file = int(found.pop("MASTER_PORT")), found.pop("TORCHELASTIC_ERROR_FILE")
            self.assertGreater(port, 0)
            self.assertFalse(os.path.exists(error_file), "the error file's folder outlived the job")
            number = str(rank)
            self.assertEqual(found, {
                "RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1", "ROLE_RANK": number, "ROLE_NAME": "default", "ROLE_WORLD_SIZE": "3",
                "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "2",
                "TORCHELASTIC_RUN_ID": "job7", "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "5"})

    def test_threads_are_the_cores_shared_out(self):
        cores = len(os.sched_getaffinity(0))
        found = self.variables("-n", str(cores + 1))
        self.assertEqual({rank.get("OMP_NUM_THREADS") for rank in found}, {os.environ.get("OMP_NUM_THREADS", "1")})

    def test_threads_that_are_no_number_are_replaced(self):
        expected = str(len(os.sched_getaffinity(0)))
        for value in ("", "all", "-1", "0"):
            self.assertEqual(self.variables("-n", "1", env={"OMP_NUM_THREADS": value})[0]["OMP_NUM_THREADS"], expected, value)
        self.assertEqual(self.variables("-n", "1", env={"OMP_NUM_THREADS": "4,2"})[0]["OMP_NUM_THREADS"], "4,2")

    def test_ranks_are_bound_to_cores(self):
        result = launch("-n", "2", "--bind-cores", "--", "python3", "-c", "import os; print(sorted(os.sched_getaffinity(0)))")
        self.assert_exit(result, 0)
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) >= 2:
            self.assertIn(f"[rank 0] {cores[:len(cores) // 2]}", result.out)
            self.assertIn(f"[rank 1] {cores[len(cores) // 2:]}", result.out)


class Ending(DtorchTest):
    def test_is_quick(self):
        best = min(launch("-n", "2", "--", "true").seconds for _ in range(5))
        self.assertLess(best, 0.2 * SLACK)

    def test_gives_the_failing_programs_own_code(self):
        for rank in (0, 1):
            result = launch("-n", "2", "--", "sh", "-c", f"test $RANK = {rank} && exit 7; sleep 1000")
            self.assert_exit(result, 7)
            self.assertIn(f"rank {rank} ", result.err)
            self.assertIn("exited with code 7", result.err)

    def test_gives_128_and_the_signal(self):
        result = launch("-n", "2", "--", "sh", "-c", "test $RANK = 1 && kill -SEGV $$; sleep 1000")
        self.assert_exit(result, 128 + signal.SIGSEGV)
        self.assertIn("killed by SIGSEGV", result.err)

    def test_says_when_there_is_no_such_program(self):
        result = launch("-n", "2", "--", "no-such-program")
        self.assert_exit(result, 127)
        self.assertIn("cannot run 'no-such-program'", result.err)

    def test_says_when_the_program_cannot_be_run(self):
        folder = pathlib.Path(self.new_folder())
        for name, text in [("noscript", "not a script"), ("nointerpreter", "#!/no/such/interpreter\n")]:
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        for program, words in [("/etc/passwd", "may not be executed"), (folder, "is a directory"),
                               (folder / "noscript", "Exec format error"), (folder / "nointerpreter", "interpreter")]:
            result = launch("-n", "2", "--max-restarts", "2", "--", program)
            self.assert_exit(result, 126)
            self.assertNotIn("restart", result.err)
            self.assertIn(f"cannot run '{program}'", result.err)
            self.assertIn(words, result.err)
        self.assert_exit(launch("--", folder / "nothing"), 127)

    def test_ends_the_others_within_a_second(self):
        script = "trap '' TERM; (setsid sleep 1000 &) ; test $RANK = 2 && exit 3; sleep 1000 & wait; sleep 1000"
        result = launch("-n", "3", "--", "bash", "-c", script)
        self.assert_exit(result, 3)
        self.assertLess(result.seconds, 1 * SLACK)
        self.assert_nothing_left(result.mark, 0.1)

    def test_ends_what_a_successful_rank_left_running(self):
        result = launch("-n", "2", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 & exit 0")
        self.assert_exit(result, 0)
        self.assertLess(result.seconds, 2 * SLACK)
        self.assert_nothing_left(result.mark, 0.1)

    def test_spares_a_stranger_with_the_number_of_a_rank_that_ended(self):
        """In a process namespace of its own, where the next process's number can be chosen."""
        folder = self.new_folder()
        outside = ["unshare", "--pid", "--fork", "--mount-proc"]
        if os.getuid() != 0:
            outside[1:1] = ["--user", "--map-root-user"]
        if run([*outside, "true"]).code != 0:
            self.skipTest("needs the right to make namespaces")
        result = run([*outside, "python3", "-c", STRANGER, FAKE_DTORCH], cwd=folder, seconds=60)
        self.assert_exit(result, 0)
        self.assertIn("the stranger lives", result.out)

    def test_shows_the_error_files_message(self):
        for message in ('"bad input"', '{"message": "bad input", "extraInfo": {}}'):
            script = f"echo '{{\"message\": {message}, \"timestamp\": 1}}' > $TORCHELASTIC_ERROR_FILE; exit 4"
            result = launch("--", "sh", "-c", script)
            self.assert_exit(result, 4)
            self.assertIn("bad input", result.err)

    def test_restarts_all_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f"echo $RANK >> {folder}/$TORCHELASTIC_RESTART_COUNT; test $RANK$TORCHELASTIC_RESTART_COUNT = 12 || test $RANK = 0 || exit 5; sleep 0.2"
            result = launch("-n", "2", "--max-restarts", "2", "--", "sh", "-c", script)
            self.assert_exit(result, 0)
            self.assertIn("restart 2 of 2", result.err)
            for attempt in "012":
                self.assertEqual(sorted(pathlib.Path(folder, attempt).read_text().split()), ["0", "1"])
        result = launch("-n", "2", "--max-restarts", "1", "--", "sh", "-c", "exit 6")
        self.assert_exit(result, 6)

    def test_restarts_less_and_less_often(self):
        with tempfile.TemporaryDirectory() as folder:
            result = launch("--max-restarts", "4", "--", "sh", "-c", f"date +%s.%N >> {folder}/times; exit 3")
            times = [float(line) for line in pathlib.Path(folder, "times").read_text().split()]
            pauses = [later - earlier for earlier, later in zip(times, times[1:])]
            self.assertEqual(len(pauses), 4)
            for pause, least in zip(pauses, (0.1, 0.2, 0.4, 0.8)):
                self.assertGreater(pause, least)
            self.assertIn("restart 4 of 4 in 0.8 s", result.err)

    def test_can_be_stopped_between_two_attempts(self):
        with Running([FAKE_DTORCH, "launch", "--max-restarts", "20", "--", "false"]) as job:
            wait_until(lambda: "restart 5 of 20" in job.text(job.err), 10, "a pause of 1.6 s")
            job.process.send_signal(signal.SIGTERM)
            asked = time.monotonic()
            self.assert_exit(job.wait(10), 143)
            self.assertLess(time.monotonic() - asked, 1)


class Output(DtorchTest):
    SCRIPT = "echo out $RANK; echo err $RANK >&2; printf 'no newline'"

    def test_is_prefixed_line_by_line(self):
        result = launch("-n", "2", "--", "sh", "-c", self.SCRIPT)
        self.assertEqual(sorted(result.out.splitlines()), ["[rank 0] no newline", "[rank 0] out 0", "[rank 1] no newline", "[rank 1] out 1"])
        self.assertEqual(sorted(result.err.splitlines()), ["[rank 0] err 0", "[rank 1] err 1"])

    def test_goes_to_files_and_with_tee_to_both(self):
        with tempfile.TemporaryDirectory() as folder:
            for extra in ([], ["--tee"]):
                result = launch("-n", "2", "--log-dir", f"{folder}/logs", *extra, "--", "sh", "-c", self.SCRIPT)
                self.assert_exit(result, 0)
                self.assertEqual("out 1" in result.out, bool(extra))
                for rank in (0, 1):
                    text = pathlib.Path(folder, "logs", f"rank{rank}.log").read_text()
                    self.assertEqual(sorted(text.splitlines()), [f"err {rank}", "no newline", f"out {rank}"])

    def test_of_a_failing_rank_is_repeated_where_it_was_not_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            result = launch("-n", "2", "--log-dir", folder, "--", "sh", "-c", "echo why $RANK; test $RANK = 0 || exit 1; sleep 1000")
            self.assertIn("| why 1", result.err)
            self.assertNotIn("why 0", result.err)

    def test_can_be_filtered(self):
        result = launch("-n", "3", "--local-ranks-filter", "0,2", "--", "sh", "-c", "echo $RANK")
        self.assertEqual(sorted(result.out.split("\n")), ["", "[rank 0] 0", "[rank 2] 2"])

    def test_is_complete_when_there_is_much_of_it(self):
        result = launch("-n", "2", "--", "seq", "1", "20000")
        self.assert_exit(result, 0)
        self.assertEqual(len(result.out.splitlines()), 40000)


class Requests(DtorchTest):
    def start(self, script, *arguments, **options):
        return Running([FAKE_DTORCH, "launch", "-n", "2", *arguments, "--", "sh", "-c", script], **options)

    def test_a_stop_reaches_the_programs(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with tempfile.TemporaryDirectory() as folder, self.start(
                    f"trap 'echo stopped > {folder}/$RANK; exit 0' INT TERM HUP; echo > {folder}/ready$RANK; while :; do sleep 0.05; done") as job:
                wait_until(lambda: len(os.listdir(folder)) == 2, 10, "both programs run")
                job.process.send_signal(number)
                result = job.wait(10)
                self.assert_exit(result, 128 + number)
                self.assertEqual(sorted(os.listdir(folder)), ["0", "1", "ready0", "ready1"])

    def test_a_program_that_does_not_stop_is_killed_after_the_grace(self):
        with self.start("trap '' INT TERM; while :; do sleep 0.05; done", "--grace", "0.3") as job:
            wait_until(lambda: len(job.others("trap")) == 2, 10, "both programs run")
            time.sleep(0.1)
            asked = time.monotonic()
            job.process.send_signal(signal.SIGTERM)
            self.assert_exit(job.wait(10), 128 + signal.SIGTERM)
            self.assertGreater(time.monotonic() - asked, 0.3)
            self.assertLess(time.monotonic() - asked, 1.2 * SLACK)

    def test_a_second_signal_kills_at_once(self):
        with self.start("trap '' INT TERM; while :; do sleep 0.05; done", "--grace", "60") as job:
            wait_until(lambda: len(job.others("trap")) == 2, 10, "both programs run")
            time.sleep(0.1)
            job.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            asked = time.monotonic()
            job.process.send_signal(signal.SIGINT)
            self.assert_exit(job.wait(10), 130)
            self.assertLess(time.monotonic() - asked, 1 * SLACK)
            self.assert_nothing_left(job.mark, 0.1)

    def test_ctrl_c_on_a_terminal_is_one_request(self):
        mark = "ctrl-c-" + str(os.getpid())
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ[dtorch_testing.MARK] = mark
            os.execv(FAKE_DTORCH, [FAKE_DTORCH, "launch", "-n", "2", "--", "sh", "-c",
                                   "trap 'echo got-it; exit 0' INT; echo ready; while :; do sleep 0.05; done"])
        text = b""
        status = None
        end = time.monotonic() + 20
        while time.monotonic() < end and status is None:
            if select.select([terminal], [], [], 0.05)[0]:
                try:
                    text += os.read(terminal, 4096)
                except OSError:
                    pass
            if text.count(b"ready") == 2:
                os.write(terminal, b"\x03")
                text = text.replace(b"ready", b"READY")
            done, code = os.waitpid(pid, os.WNOHANG)
            status = code if done else None
        os.close(terminal)
        self.assertIsNotNone(status, text)
        self.assertEqual(os.waitstatus_to_exitcode(status), 130, text)
        self.assertEqual(text.count(b"got-it"), 2, text)
        self.assert_nothing_left(mark, 1)


class Mistakes(DtorchTest):
    def test_a_busy_port_is_named_with_its_owner(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            result = launch("--master-port", str(port), "--", "true")
            self.assert_exit(result, 71)
            self.assertIn(f"port {port} on 127.0.0.1 is already in use by", result.err)
            self.assertIn(f"(pid {os.getpid()})", result.err)
            self.assertLess(result.seconds, 1 * SLACK)

    def test_another_machines_address_is_refused(self):
        result = launch("--master-addr", "192.0.2.1", "--", "true")
        self.assert_exit(result, 71)
        self.assertIn("192.0.2.1 is not an address of this machine", result.err)

    def test_usage(self):
        for arguments, words in [
                ([], "no program"), (["--node-rank", "3", "--", "true"], "--node-rank 3"),
                (["--nnodes", "2", "--", "true"], "--master-port"), (["--tee", "--", "true"], "--log-dir"),
                (["-n", "0", "--", "true"], "-n"), (["-n", "nan", "--", "true"], "-n"),
                (["-n", "-1", "--", "true"], "-n"), (["--nnodes", "inf", "--", "true"], "--nnodes"),
                (["--node-rank", "-1", "--", "true"], "--node-rank"), (["--node-rank", "nan", "--", "true"], "--node-rank"),
                (["--master-port", "65536", "--", "true"], "--master-port"), (["--max-restarts", "-1", "--", "true"], "--max-restarts"),
                (["--max-restarts", "nan", "--", "true"], "--max-restarts"), (["--grace", "nan", "--", "true"], "--grace"),
                (["--grace", "inf", "--", "true"], "--grace"), (["--grace", "-1", "--", "true"], "--grace"),
                (["--grace=-0.5", "--", "true"], "--grace"), (["--grace", "0x10", "--", "true"], "--grace"),
                (["--grace", "1e999", "--", "true"], "--grace"), (["--timeout", "nan", "--", "true"], "--timeout"),
                (["--timeout", "0", "--", "true"], "--timeout"),
                (["-n", "2", "--local-ranks-filter", "0,2", "--", "true"], "--local-ranks-filter 2 is not from 0 to 1"),
                (["--local-ranks-filter=-1", "--", "true"], "--local-ranks-filter"), (["--rdzv-endpoint", "nonsense", "--", "true"], "HOST:PORT")]:
            result = launch(*arguments)
            self.assert_exit(result, 64)
            self.assertIn(words, result.err)

    def test_an_option_that_is_none_is_not_taken_for_the_program(self):
        for option, hint in (("--nproc_per_node=2", "did you mean '--nproc-per-node'?"), ("--rdzv-bakend", "see dtorch launch --help"),
                             ("-x", "see dtorch launch --help")):
            result = launch(option, "--", "true")
            self.assert_exit(result, 64)
            self.assertIn(f"unknown option '{option.split('=')[0]}'", result.err)
            self.assertIn(hint, result.err)

    def test_suggestions(self):
        for arguments, words in [(["lanch"], "did you mean 'launch'?"), (["run", "x.yaml", "--nnode", "2"], "did you mean '--nnodes'?")]:
            result = run([FAKE_DTORCH, *arguments])
            self.assert_exit(result, 64)
            self.assertIn(words, result.err)

    def test_help_and_version_are_quick(self):
        for arguments in (["--help"], ["--version"], ["launch", "--help"], ["run", "--help"]):
            results = [run([FAKE_DTORCH, *arguments]) for _ in range(5)]
            self.assert_exit(results[0], 0)
            self.assertTrue(results[0].out.strip())
            self.assertLess(min(result.seconds for result in results), 0.05 * SLACK)


class PythonPrograms(DtorchTest):
    def test_a_script_is_run_by_python(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "hello.py")
            script.write_text("import os, sys\nprint('hello', os.environ['RANK'], sys.argv[1:])\n")
            result = launch("-n", "2", str(script), "--flag", "-n", "3")
            self.assert_exit(result, 0)
            self.assertIn("[rank 1] hello 1 ['--flag', '-n', '3']", result.out)
            self.assert_exit(launch("--no-python", str(script)), 126)


if __name__ == "__main__":
    dtorch_testing.main()
