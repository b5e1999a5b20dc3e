"""dtorch launch on several nodes: launchers that must find each other, agree, fail, stop and end together."""
import json
import os
import pathlib
import signal
import socket
import tempfile
import time

import dtorch_testing
from dtorch_testing import DTORCH, FAKE_DTORCH, SLACK, DtorchTest, Running, free_port, marked_processes, wait_until


class Nodes(DtorchTest):
    def setUp(self):
        self.port = free_port()

    def node(self, rank, script, *arguments, ranks=2, nnodes=2, dtorch=FAKE_DTORCH, program=("sh", "-c")):
        return Running([dtorch, "launch", "-n", ranks, "--nnodes", nnodes, "--node-rank", rank, "--rdzv-endpoint",
                        f"127.0.0.1:{self.port}", *arguments, "--", *program, script])

    def wait(self, *jobs, seconds=20):
        return [job.wait(seconds) for job in jobs]

    def test_number_their_ranks(self):
        script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_PORT"
        with self.node(1, script) as second, self.node(0, script) as first:
            for node, result in enumerate(self.wait(first, second)):
                self.assert_exit(result, 0)
                self.assertEqual(sorted(result.out.splitlines()),
                                 [f"[rank {2 * node + i}] {2 * node + i} {i} 4 2 {node} 2 {self.port}" for i in (0, 1)])

    def test_may_have_different_numbers_of_ranks(self):
        # What torchrun 2.11 gives ranks of --nproc-per-node 1 and 3.
        script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $ROLE_RANK $ROLE_WORLD_SIZE"
        with self.node(0, script, ranks=1) as first, self.node(1, script, "--local-ranks-filter", "1,2", ranks=3) as second:
            results = self.wait(first, second)
            for result in results:
                self.assert_exit(result, 0)
            self.assertEqual(results[0].out, "[rank 0] 0 0 4 1 0 4\n")
            self.assertEqual(sorted(results[1].out.splitlines()), ["[rank 2] 2 1 4 3 2 4", "[rank 3] 3 2 4 3 3 4"])

    def test_have_one_run_id(self):
        with self.node(0, "echo $TORCHELASTIC_RUN_ID") as first, self.node(1, "echo $TORCHELASTIC_RUN_ID") as second:
            results = self.wait(first, second)
            ids = {line.split("] ")[1] for result in results for line in result.out.splitlines()}
            self.assertEqual(len(ids), 1, results)
            self.assertTrue(ids.pop())

    def test_that_were_started_differently_are_refused(self):
        for here, there in [(["--max-restarts", "3"], ["--max-restarts", "1"]), (["--rdzv-id", "one"], ["--rdzv-id", "two"])]:
            with self.node(0, "sleep 1000", *here) as first, self.node(1, "sleep 1000", *there) as second:
                for result in self.wait(first, second):
                    self.assert_exit(result, 76)
                    host = socket.gethostname()
                    self.assertIn(f"node 0 ({host}) was started with {here[0]} {here[1]}", result.err)
                    self.assertIn(f"node 1 ({host}) with {there[0]} {there[1]}", result.err)
        with self.node(0, "sleep 1000", nnodes=2) as first, self.node(1, "sleep 1000", nnodes=3) as second:
            for result in self.wait(first, second):
                self.assert_exit(result, 76)
                self.assertRegex(result.err, r"--nnodes 2, node 1 .* with --nnodes 3")
        with self.node(0, "sleep 1000") as first, self.node(1, "sleep 2000") as second:
            for result in self.wait(first, second):
                self.assert_exit(result, 76)
                self.assertRegex(result.err, "'sh -c sleep 1000', node 1 .* 'sh -c sleep 2000'")

    def test_share_the_first_failure(self):
        for failing in (1, 2):
            script = f"test $RANK = {failing} && sleep 0.5 && exit 9; sleep 1000"
            with self.node(0, script) as first, self.node(1, script) as second:
                results = self.wait(first, second)
                for result in results:
                    self.assert_exit(result, 9)
                    self.assertIn(f"rank {failing} (pid", result.err)
                    self.assertNotIn("first step", result.err)
                self.assertLess(abs(results[0].seconds - results[1].seconds), 1.5 * SLACK)

    def test_restart_together(self):
        script = "test $RANK$TORCHELASTIC_RESTART_COUNT = 30 && exit 9; test $TORCHELASTIC_RESTART_COUNT = 1 || sleep 1000; echo again $RANK"
        with self.node(0, script, "--max-restarts", 1) as first, self.node(1, script, "--max-restarts", 1) as second:
            for result in self.wait(first, second):
                self.assert_exit(result, 0)
                self.assertEqual(result.out.count("again"), 2)

    def test_restart_those_whose_ranks_had_ended_well(self):
        script = "test $RANK$TORCHELASTIC_RESTART_COUNT = 00 && sleep 0.5 && exit 9; echo again $RANK"
        with self.node(0, script, "--max-restarts", 1) as first, self.node(1, script, "--max-restarts", 1) as second:
            for result in self.wait(first, second):
                self.assert_exit(result, 0)
                self.assertIn("restart 1 of 1", result.err)

    def test_end_together(self):
        script = "test $GROUP_RANK = {} || sleep 1"
        for quick in (0, 1):
            with self.node(0, script.format(quick)) as first, self.node(1, script.format(quick)) as second:
                for result in self.wait(*((first, second) if quick == 0 else (second, first))):
                    self.assert_exit(result, 0)
                    self.assertGreater(result.seconds, 1)

    def test_stop_together(self):
        script = "trap 'echo stopped; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        for asked in (0, 1):
            with self.node(0, script) as first, self.node(1, script) as second:
                jobs = (first, second)
                wait_until(lambda: all(job.text(job.out).count("ready") == 2 for job in jobs), 10, "all programs run")
                jobs[asked].process.send_signal(signal.SIGTERM)
                for result in self.wait(*jobs):
                    self.assert_exit(result, 143)
                    self.assertEqual(result.out.count("stopped"), 2, repr(result))

    def test_stop_before_all_have_come(self):
        with self.node(0, "sleep 1000", nnodes=3) as first, self.node(1, "sleep 1000", nnodes=3) as second:
            wait_until(lambda: "not come" in second.text(second.err), 20, "node 1 waits")
            first.process.send_signal(signal.SIGINT)
            for result in self.wait(first, second):
                self.assert_exit(result, 130)

    def test_tell_who_is_missing(self):
        with self.node(0, "true", "--timeout", "4", nnodes=4) as first, self.node(2, "true", nnodes=4) as third:
            for result in self.wait(first, third):
                self.assert_exit(result, 124)
                self.assertIn(f"nodes 1, 3 of 4 did not come to 127.0.0.1:{self.port} within", result.err)
                host = socket.gethostname()
                self.assertIn(f" s: nodes 1, 3 of 4 have not come; here: node 0 ({host}), node 2 ({host})", result.err)

    def test_refuse_a_node_rank_that_is_taken(self):
        with self.node(0, "sleep 1000", nnodes=3) as first, self.node(1, "sleep 1000", nnodes=3) as second:
            wait_until(lambda: f"node 1 ({socket.gethostname()})" in first.text(first.err), 20, "node 1 has joined")
            with self.node(1, "sleep 1000", nnodes=3) as third:
                for result in self.wait(first, second, third):
                    self.assert_exit(result, 76)
                    self.assertIn(f"node rank 1 is already taken by {socket.gethostname()}", result.err)

    def test_a_late_one_too_many_disturbs_nobody(self):
        with self.node(0, "sleep 2") as first, self.node(1, "sleep 2") as second:
            wait_until(lambda: len(second.others("^sleep 2")) == 2, 10, "the ranks run")
            with self.node(1, "sleep 2") as third:
                self.assert_exit(third.wait(20), 76)
            for result in self.wait(first, second):
                self.assert_exit(result, 0)

    def test_end_when_one_lacks_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            for lacking in (0, 1):
                there = pathlib.Path(folder, "program")
                there.symlink_to("/bin/sleep")
                jobs = []
                # The same path on both nodes: it is taken away before the lacking one starts.
                for node in (1 - lacking, lacking):
                    jobs.append(self.node(node, "1000", program=(there,)))
                    wait_until(lambda: jobs[0].others("__agent"), 10, "the first launcher runs")
                    if node != lacking:
                        wait_until(lambda: node == 1 or "not come" in jobs[0].text(jobs[0].err), 10, "it waits")
                        there.unlink()
                with jobs[0], jobs[1]:
                    for result in self.wait(*jobs):
                        self.assert_exit(result, 127)
                        self.assertIn(f"cannot run '{there}': no such program", result.err)
                        self.assertIn(f"on {socket.gethostname()}", result.err)

    def test_name_a_program_that_is_no_text(self):
        with self.node(0, "1", program=("no-such-\udcff",)) as first, self.node(1, "1", program=("no-such-\udcff",)) as second:
            for result in self.wait(first, second):
                self.assert_exit(result, 127)
                self.assertIn("cannot run 'no-such-?'", result.err.replace("\ufffd", "?"))

    def test_do_not_end_well_because_another_says_nonsense(self):
        for said in ({"stop": 128}, {"stop": -1}, {"failure": {"kind": "interrupted", "message": "x", "signal": 128}}):
            with self.node(0, "sleep 1000") as first, self.node(1, "sleep 1000") as second:
                wait_until(lambda: all(len(job.others("^sleep 1000")) == 2 for job in (first, second)), 10, "the ranks run")
                end = {"type": "first", "counter": "dtorch/launch/0/ends", "key": "dtorch/launch/0/end", "value": json.dumps(said)}
                with socket.create_connection(("127.0.0.1", self.port)) as store:  # as fake_engine's store is spoken to
                    store.sendall(json.dumps(end).encode() + b"\n")
                    for result in self.wait(first, second):
                        self.assert_exit(result, 76)
                        self.assertIn("cannot be read", result.err)

    def test_name_a_launcher_that_was_killed(self):
        for dtorch in (FAKE_DTORCH, DTORCH):
            for victim in (0, 1):
                with self.node(0, "sleep 1000", dtorch=dtorch) as first, self.node(1, "sleep 1000", dtorch=dtorch) as second:
                    jobs = [first, second]
                    wait_until(lambda: all(len(job.others("^sleep 1000")) == 2 for job in jobs), 30, "all programs run")
                    jobs[victim].process.kill()
                    killed = time.monotonic()
                    result = jobs[1 - victim].wait(20)
                    self.assertLess(time.monotonic() - killed, 1 * SLACK)
                    self.assert_exit(result, 69)
                    self.assertRegex(result.err, rf"the launcher of node {victim} \({socket.gethostname()}\) \(pid \d+\) was killed")
                    for job in jobs:
                        self.assert_nothing_left(job.mark, 2)

    def test_name_one_that_vanishes_with_all_that_it_ran(self):
        with self.node(0, "sleep 1000", dtorch=DTORCH) as first, self.node(1, "sleep 1000", dtorch=DTORCH) as second:
            wait_until(lambda: all(len(job.others("^sleep 1000")) == 2 for job in (first, second)), 30, "all programs run")
            time.sleep(1)
            for pid in [second.pid, *second.others()]:
                os.kill(pid, signal.SIGSTOP)  # as if its machine had gone: nobody there says a word
            result = first.wait(30)
            self.assert_exit(result, 69)
            self.assertIn(f"the launcher of node 1 ({socket.gethostname()}) has shown no sign of life for 10 s", result.err)

    def test_can_start_again_at_once(self):
        for _ in range(3):
            with self.node(0, "true", dtorch=DTORCH) as first, self.node(1, "true", dtorch=DTORCH) as second:
                self.assert_exit(first.wait(60), 0)
                self.assertFalse(marked_processes(first.mark), "what held the port ended before the launcher")
                self.assert_exit(second.wait(60), 0)


if __name__ == "__main__":
    dtorch_testing.main()
