"""dtorch run and join: how a job's processes are watched and ended. Ranks and agent are tests/integration/fake_engine.cpp."""
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import dtorch_testing
from dtorch_testing import FAKE_DTORCH, SLACK, DtorchTest, Running, fake_ranks, free_port, wait_until

SPEC = """
version: 1
name: test
world_size: {world}
init_method: {method}
dataset: mnist
model: {{type: mlp, layers: [784, 16, 10]}}
timeouts: {{rendezvous: 10s, shutdown: {shutdown}}}
"""


class JobTest(DtorchTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def spec(self, world=2, method="tcp://127.0.0.1:0", shutdown="5s", name="job.yaml", more=""):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(SPEC.format(world=world, method=method, shutdown=shutdown) + more)
        return path

    def start(self, *arguments, spec=None, world=2, shutdown="5s", **scripts):
        """Ranks do what rank0=..., rank1=..., rank=... say."""
        return Running([FAKE_DTORCH, "run", spec or self.spec(world, shutdown=shutdown), "--json", *arguments],
                       env=fake_ranks(scripts), cwd=self.folder.name)

    def run_job(self, *arguments, **options):
        with self.start(*arguments, **options) as job:
            result = job.wait(30)
        self.assert_nothing_left(result.mark, 0.2)
        return result

    def ranks(self, job, count=2):
        """The ranks' pids in order, once they train."""
        wait_until(lambda: len(job.ranks()) == count, 10, f"{count} ranks run")
        return [pid for _, pid in sorted(job.ranks().items())]


class Jobs(JobTest):
    def test_a_job_that_goes_well(self):
        result = self.run_job(rank="steps:3,print:hello")
        self.assert_exit(result, 0)
        self.assertEqual([event["fake"] for event in result.events("plan")], [True])
        self.assertEqual(len(result.events("step")), 6)

    def test_a_job_that_another_launcher_starts_once_a_rank_is_warned_of(self):
        result = self.run_job(rank="steps:1", RANK="0", WORLD_SIZE="2")
        self.assert_exit(result, 0)
        self.assertIn("warning: RANK and WORLD_SIZE=2 are set", result.err)
        self.assertIn("set init_method to env://", result.err)
        self.assertNotIn("WORLD_SIZE", self.run_job(rank="steps:1", RANK="0", WORLD_SIZE="1").err)

    def test_dry_run_starts_no_rank(self):
        result = self.run_job("--dry-run", rank="fail:data")
        self.assert_exit(result, 0)

    def test_ranks_do_not_start_before_the_plan_is_found_good(self):
        result = self.run_job(rank="print:started", FAKE_AGENT="refuse")
        self.assert_exit(result, 78)
        self.assertEqual(self.error_of(result)["message"], "the plan does not work")
        self.assertNotIn("started", result.out + result.err)

    def test_an_agent_that_crashes_ends_the_job(self):
        result = self.run_job(rank="train", FAKE_AGENT="die")
        self.assert_exit(result, 69)
        self.assertIn("helper process", self.error_of(result)["message"])

    def test_log_dir_takes_the_output(self):
        result = self.run_job("--log-dir", "logs", rank="print:hello")
        self.assert_exit(result, 0)
        for rank in (0, 1):
            self.assertEqual(pathlib.Path(self.folder.name, "logs", f"rank{rank}.log").read_text(), "hello\n")


    def test_a_reader_that_goes_away_ends_nothing(self):
        with Running([FAKE_DTORCH, "run", self.spec(), "--json"], env={"FAKE_RANK": "steps:3,sleep:0.5,steps:3"},
                     cwd=self.folder.name, stdout=subprocess.PIPE) as job:
            job.process.stdout.readline()
            job.process.stdout.close()
            self.assert_exit(job.wait(30), 0)

    def test_a_signal_that_was_ignored_at_the_start_stays_ignored(self):
        with Running([FAKE_DTORCH, "run", self.spec(), "--json"], env={"FAKE_RANK": "steps:3,sleep:1"}, cwd=self.folder.name,
                     preexec=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as job:  # as nohup does
            wait_until(lambda: '"event":"step"' in job.text(job.out), 20, "the ranks run")
            job.process.send_signal(signal.SIGHUP)
            self.assert_exit(job.wait(30), 0)


class FirstCause(JobTest):
    def test_a_killed_rank(self):
        result = self.run_job(rank0="train", rank1="steps:4,print:last words,sleep:0.1,raise:9")
        self.assert_exit(result, 69)
        error = self.error_of(result)
        self.assertEqual((error["rank"], error["signal"], error["host"]), (1, 9, socket.gethostname()))
        self.assertEqual(error["step"], 4)
        self.assertIn("all_reduce #7", error["collective"])
        self.assertIn("last words", result.err)

    def test_is_the_dead_rank_even_when_others_complain_first(self):
        result = self.run_job(world=3, rank0="sleep:0.1,consequence", rank1="sleep:0.1,fail:lost", rank2="sleep:0.2,raise:11")
        self.assert_exit(result, 69)
        self.assertEqual((self.error_of(result)["rank"], self.error_of(result)["signal"]), (2, 11))

    def test_is_a_complaint_when_there_is_nothing_better(self):
        result = self.run_job(rank0="consequence", rank1="train")
        self.assert_exit(result, 69)
        self.assertEqual(self.error_of(result)["message"], "connection closed by peer")

    def test_exit_codes_follow_the_kind(self):
        for kind, code in [("data", 65), ("training", 70), ("disagree", 76), ("timeout", 124), ("cannot_write", 74)]:
            result = self.run_job(rank0="train", rank1=f"fail:{kind}")
            self.assert_exit(result, code)
            self.assertEqual((self.error_of(result)["kind"], self.error_of(result)["rank"]), (kind, 1))

    def test_a_rank_that_says_nothing(self):
        result = self.run_job(rank0="train", rank1="exit:5")
        self.assert_exit(result, 69)
        self.assertIn("exited with code 5", self.error_of(result)["message"])

    def test_a_stopped_rank_is_named_when_others_time_out(self):
        with self.start(rank0="sleep:1.5,fail:timeout", rank1="train") as job:
            os.kill(self.ranks(job)[1], signal.SIGSTOP)
            result = job.wait(20)
        self.assert_exit(result, 124)
        self.assertRegex(self.error_of(result)["message"], r"rank 1 \(pid \d+\) is stopped")
        self.assertEqual(self.error_of(result)["missing_ranks"], [1])
        self.assert_nothing_left(result.mark, 0.2)

    def test_a_timeout_shows_what_every_rank_is_doing(self):
        result = self.run_job(rank0="sleep:0.2,fail:timeout", rank1="train")
        self.assert_exit(result, 124)
        self.assertIn("all_reduce #7 waiting", result.err)

    def test_ranks_that_listen_to_nobody_end_too(self):
        with self.start(world=3, rank0="deaf", rank1="deaf,", rank2="grandchild,train") as job:
            pids = self.ranks(job, 3)
            wait_until(lambda: len(job.others("^sleep 1000$")) == 2, 10, "grandchildren run")
            os.kill(pids[2], signal.SIGKILL)
            killed = time.monotonic()
            result = job.wait(20)
        self.assertLess(time.monotonic() - killed, 1 * SLACK)
        self.assert_exit(result, 69)
        self.assertEqual(self.error_of(result)["rank"], 2)
        self.assert_nothing_left(result.mark, 0.2)

    def test_kills_at_random_moments(self):
        seed = int(os.environ.get("DTORCH_TEST_SEED", time.time_ns() % 1_000_000))
        print("seed", seed)
        moments = random.Random(seed)
        for _ in range(20):
            victim = moments.randrange(2)
            with self.start(rank="train") as job:
                pid = self.ranks(job)[victim]
                time.sleep(moments.uniform(0, 0.1))
                os.kill(pid, signal.SIGKILL)
                killed = time.monotonic()
                result = job.wait(20)
            self.assert_exit(result, 69)
            self.assertLess(time.monotonic() - killed, 1 * SLACK)
            self.assertEqual((self.error_of(result)["rank"], self.error_of(result)["signal"]), (victim, 9))
            self.assert_nothing_left(result.mark, 0.2)


class Stopping(JobTest):
    def test_asks_the_ranks(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.start(rank="steps:7,train") as job:
                self.ranks(job)
                time.sleep(0.3)
                job.process.send_signal(number)
                result = job.wait(20)
            self.assert_exit(result, 128 + number)
            self.assertEqual(self.error_of(result)["kind"], "interrupted")
            self.assertEqual(self.error_of(result)["step"], 7)

    def test_before_the_ranks_train(self):
        with self.start(rank="train") as job:
            wait_until(lambda: job.others(), 10, "something runs")
            job.process.send_signal(signal.SIGTERM)
            result = job.wait(20)
        self.assert_exit(result, 143)
        self.assert_nothing_left(result.mark, 0.2)

    def test_deaf_ranks_are_killed_at_the_deadline(self):
        with self.start(rank="deaf", shutdown="500ms") as job:
            self.ranks(job)
            time.sleep(0.3)
            asked = time.monotonic()
            job.process.send_signal(signal.SIGTERM)
            result = job.wait(20)
        self.assert_exit(result, 143)
        self.assertGreater(time.monotonic() - asked, 0.5)
        self.assertLess(time.monotonic() - asked, 1.2 * SLACK)

    def test_a_second_signal_kills(self):
        with self.start(rank="deaf", shutdown="60s") as job:
            self.ranks(job)
            time.sleep(0.3)
            job.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            asked = time.monotonic()
            job.process.send_signal(signal.SIGINT)
            result = job.wait(20)
        self.assert_exit(result, 130)
        self.assertLess(time.monotonic() - asked, 1 * SLACK)

    def test_a_killed_launcher_leaves_nothing(self):
        with self.start(rank="grandchild,deaf") as job:
            wait_until(lambda: len(job.others("^sleep 1000$")) == 4, 10, "grandchildren run")
            job.process.send_signal(signal.SIGKILL)
            job.process.wait()
            self.assert_nothing_left(job.mark, 2)


class Nodes(JobTest):
    def setUp(self):
        super().setUp()
        self.method = f"tcp://127.0.0.1:{free_port()}"

    def node(self, number, *arguments, world=4, nnodes=2, **scripts):
        return self.start("--nnodes", nnodes, "--node-rank", number, *arguments,
                          spec=self.spec(world, self.method, name=f"node{number}.yaml"), **scripts)

    def test_share_the_first_failure(self):
        scripts = {"rank0": "await:dying,consequence", "rank1": "train", "rank2": "train", "rank3": "sleep:0.5,touch:dying,raise:9"}
        with self.node(0, **scripts) as first, self.node(1, **scripts) as second:
            for job in (first, second):
                result = job.wait(20)
                self.assert_exit(result, 69)
                self.assertEqual((self.error_of(result)["rank"], self.error_of(result)["signal"]), (3, 9), repr(result))

    def test_end_well_together(self):
        with self.node(0, rank="steps:2") as first, self.node(1, rank="steps:2,sleep:0.5") as second:
            self.assert_exit(second.wait(20), 0)
            self.assert_exit(first.wait(20), 0)

    def end_both(self, first, second, code, *words):
        for result in (first.wait(20), second.wait(20)):
            self.assert_exit(result, code)
            for word in words:
                self.assertIn(word, self.error_of(result)["message"])

    def test_refuse_another_spec(self):
        with self.node(0, "-s", "optimizer.lr=0.125", rank="train") as first, \
                self.node(1, "-s", "optimizer.lr=0.25", rank="train") as second:
            host = socket.gethostname()
            self.end_both(first, second, 76, f"lr: 0.125' on node 0 ({host})", f"lr: 0.25' on node 1 ({host})")

    def test_refuse_another_number_of_nodes(self):
        with self.node(0, rank="train") as first, self.node(1, nnodes=4, rank="train") as second:
            self.end_both(first, second, 76, "[2,2]", "[1,1,1,1]")

    def test_end_when_one_of_them_cannot_run_the_job(self):
        for refused in (0, 1):
            with self.node(0, rank="train", **({"FAKE_AGENT": "refuse"} if refused == 0 else {})) as first, \
                    self.node(1, rank="train", **({"FAKE_AGENT": "refuse"} if refused == 1 else {})) as second:
                self.end_both(first, second, 78, "the plan does not work")

    def test_need_a_port(self):
        self.method = "tcp://127.0.0.1:0"
        with self.node(0) as first:
            self.assert_exit(first.wait(20), 78)

    def test_say_when_node_0_does_not_come(self):
        with self.node(1, "-s", "timeouts.rendezvous=300ms") as second:
            result = second.wait(20)
            self.assert_exit(result, 124)
            self.assertIn("node 0 does not answer", self.error_of(result)["message"])

    def test_a_lost_launcher_ends_the_others(self):
        for victim in (0, 1):
            with self.node(0, rank="train") as first, self.node(1, rank="train") as second:
                jobs = (first, second)
                wait_until(lambda: all(len(job.others(" __rank ")) == 2 for job in jobs), 10, "both run")
                time.sleep(0.3)
                jobs[victim].process.send_signal(signal.SIGKILL)
                killed = time.monotonic()
                result = jobs[1 - victim].wait(10)
                self.assertLess(time.monotonic() - killed, 1 * SLACK)
                self.assert_exit(result, 69)
                self.assertIn(f"the launcher of node {victim} ({socket.gethostname()})", self.error_of(result)["message"])
                self.assert_nothing_left(jobs[victim].mark, 2)

    def join(self, *arguments, **scripts):
        return Running([FAKE_DTORCH, "join", self.method, "--json", *arguments], env=fake_ranks(scripts), cwd=self.folder.name)

    def test_can_be_filled_by_joiners(self):
        with self.join(rank="print:lent") as early, self.node(0, nnodes=3, world=6, rank="print:own,sleep:1") as first, \
                self.join("--slots", 2, rank="print:lent") as late:
            results = [early.wait(20), late.wait(20)]
            numbers = sorted(re.findall(r"\[rank (\d)\]:? lent", "".join(result.err for result in results)))
            self.assertEqual(numbers, ["2", "3", "4", "5"], repr(results))
            for result in results:
                self.assert_exit(result, 0)
                self.assertIn("test: 6 ranks", result.err)
            self.assert_exit(first.wait(20), 0)

    def test_a_joiner_without_enough_slots_is_refused(self):
        with self.node(0, rank="train"), self.join("--slots", 1) as joiner:
            result = joiner.wait(20)
            self.assert_exit(result, 76)

    def test_a_joiner_reads_no_files_outside_its_folder(self):
        for override in ("dataset.root=/etc", "dataset.root=../elsewhere"):
            with self.node(0, "-s", override, rank="train") as first, self.join() as joiner:
                self.end_both(first, joiner, 77, "outside")

    def test_a_joiners_numbers_are_checked(self):
        for arguments in (["--timeout", "nan"], ["--timeout", "inf"], ["--timeout", "-1"], ["--slots", "0"], ["--slots", "nan"],
                          ["--slots", "1e99"]):
            with self.join(*arguments) as joiner:
                result = joiner.wait(20)
                self.assert_exit(result, 64)
                self.assertIn(arguments[0], result.err)

    def test_a_joiner_needs_a_port(self):
        self.method = "tcp://127.0.0.1:0"
        with self.join() as joiner:
            result = joiner.wait(20)
        self.assert_exit(result, 64)
        self.assertIn("port 0", result.err)

    def test_a_joiners_files_are_looked_for_in_the_datasets_folder(self):
        files = ", ".join(f"{name}: ../{name}" for name in ("train_images", "train_labels", "test_images", "test_labels"))
        for root, code in (("inner", 0), (".", 77)):
            with self.node(0, "-s", f"dataset={{type: idx, root: {root}, {files}}}", rank="sleep:1"), self.join() as joiner:
                self.assert_exit(joiner.wait(20), code)


class ForeignOffers(JobTest):
    """What waits at the endpoint is no friend: its offer is checked before anything of it is used."""

    def setUp(self):
        super().setUp()
        self.offer = None
        self.server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.server.close)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        """Speaks as fake_engine's store; whatever is asked for, the offer is the answer."""
        while True:
            try:
                client, _ = self.server.accept()
                with client, client.makefile("rw") as lines:
                    for _ in lines:
                        lines.write(json.dumps({"type": "value", "value": self.offer}) + "\n")
                        lines.flush()
            except ConnectionError:
                continue
            except OSError:
                return

    def join(self, offer, **env):
        self.offer = offer if isinstance(offer, str) else json.dumps(offer)
        with Running([FAKE_DTORCH, "join", f"tcp://127.0.0.1:{self.server.getsockname()[1]}", "--json"],
                     env=env, cwd=self.folder.name) as joiner:
            return joiner.wait(20)

    def text(self, world=4, method="tcp://127.0.0.1:1", more=""):
        return self.spec(world=world, method=method, more=more).read_text()

    def test_carry_nothing_of_the_environment_away(self):
        more = 'name: "x${env:SECRET}"\n'
        spec = self.text().replace("name: test\n", "") + more
        result = self.join({"spec": spec, "nodes": [2, 2]}, SECRET="hunter2")
        self.assert_exit(result, 78)
        self.assertIn("a resolved spec has no variables", self.error_of(result)["message"] + result.err)
        self.assertNotIn("hunter2", result.out + result.err)

    def test_contradict_themselves(self):
        self.assert_exit(self.join({"spec": self.text(world=3), "nodes": [2, 2]}), 76)

    def test_meet_nowhere_but_where_they_were_joined(self):
        for method in ("file:///tmp/elsewhere", "shared_filesystem:///nfs/elsewhere", "env://"):
            self.assert_exit(self.join({"spec": self.text(method=method), "nodes": [2, 2]}), 77)

    def test_are_damaged(self):
        spec = self.text()
        for offer in ("", "null", "[]", "{", '{"spec": 1, "nodes": [2, 2]}', {"spec": spec}, {"nodes": [2, 2]},
                      {"spec": spec, "nodes": []}, {"spec": spec, "nodes": [4, 0]}, {"spec": spec, "nodes": [2, "2"]},
                      {"spec": spec, "nodes": [5, -1]}, {"spec": spec, "nodes": [2, 2.0]},
                      {"spec": spec, "nodes": [2, 2**64 - 2]}, {"spec": spec, "nodes": {"0": 2}},
                      {"spec": "#" * (1 << 20) + spec, "nodes": [2, 2]}, {"spec": spec, "nodes": [1] * 70000}):
            result = self.join(offer)
            self.assert_exit(result, 76)
            self.assertIn("malformed", self.error_of(result)["message"])


if __name__ == "__main__":
    dtorch_testing.main()
