"""Ranks that another launcher starts (torchrun, srun, mpirun): `dtorch run` is a rank where env:// says so."""
import json
import os
import re
import signal
import socket
import subprocess
import unittest

from train_support import TIMEOUT, TrainingTest, steps_in


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RanksTest(TrainingTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def start_rank(self, rank, *overrides, world_size=2, options=(), **environment):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank),
                     "LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port),
                     "TORCHELASTIC_ERROR_FILE": self.path(f"error.{rank}.json"), **environment}
        return self.start("init_method=env://", *overrides, options=options, **variables)

    def ends(self, jobs):
        """(exit code, stdout, stderr) of each."""
        texts = [job.communicate(timeout=TIMEOUT) for job in jobs]
        return [(job.returncode, *text) for job, text in zip(jobs, texts)]

    def test_rank_0_prints_progress_and_result(self):
        losses = self.path("losses")
        jobs = [self.start_rank(rank, options=("--losses", losses)) for rank in range(2)]
        (code0, out0, err0), (code1, out1, err1) = self.ends(jobs)
        self.assertEqual((code0, code1), (0, 0), err0 + err1)
        self.assertRegex(out0, r"^test_accuracy 0\.\d+ loss .* world_size 2 backend gloo dataset fashion_mnist\n$")
        self.assertIn("epoch 1: test accuracy", err0)
        self.assertEqual(out1, "")
        self.assertEqual([steps_in(f"{losses}.{rank}") for rank in range(2)], [469, 469])
        self.assertFalse(os.path.exists(self.path("error.0.json")))

    def test_rank_0_prints_json(self):
        (code0, out0, err0), (code1, out1, err1) = self.ends([self.start_rank(rank, options=("--json",)) for rank in range(2)])
        self.assertEqual((code0, code1), (0, 0), err0 + err1)
        events = [json.loads(line) for line in out0.splitlines()]
        self.assertEqual([event["event"] for event in events if event["event"] != "step"], ["epoch", "eval", "result"])
        self.assertEqual(events[-1]["world_size"], 2)
        self.assertEqual({(event["event"], event["rank"]) for event in map(json.loads, out1.splitlines())}, {("step", 1)})
        [(code, out, err)] = self.ends([self.start_rank(0, world_size=3, options=("--json",))])
        self.assertEqual((code, json.loads(out)["event"], json.loads(out)["kind"]), (76, "error", "disagree"), err)

    def test_a_result_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            job = self.start("init_method=env://", "world_size=1", stdout=full, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                             MASTER_PORT=str(self.port))
            _, err = job.communicate(timeout=TIMEOUT)
        self.assertEqual(job.returncode, 74, err)
        self.assertIn("standard output", err)

    def test_what_only_a_launcher_of_ours_does_is_refused(self):
        for flag in ("--nnodes=2", "--node-rank=1", "--log-dir=logs"):
            [(code, _, err)] = self.ends([self.start_rank(0, options=(flag,))])
            self.assertEqual(code, 64, err)
            self.assertIn("env://", err)

    def test_wrong_world_size_is_told_at_once(self):
        [(code, _, err)] = self.ends([self.start_rank(0, world_size=3)])
        self.assertEqual(code, 76, err)
        self.assertIn("world_size 2", err)
        self.assertIn("3 ranks", err)
        with open(self.path("error.0.json")) as file:
            error = json.load(file)
        self.assertIn("world_size 2", error["message"])
        self.assertGreater(error["timestamp"], 1_600_000_000)

    def test_specs_that_differ_are_shown(self):
        ends = self.ends([self.start_rank(0, "optimizer.lr=0.25"), self.start_rank(1, "optimizer.lr=0.125")])
        self.assertIn(76, [code for code, _, _ in ends], ends)
        text = "".join(err for _, _, err in ends)
        self.assertIn("0.25", text)
        self.assertIn("0.125", text)

    def test_rank_that_never_comes_is_named(self):
        [(code, _, err)] = self.ends([self.start_rank(0, "timeouts.rendezvous=2s")])
        self.assertEqual(code, 124, err)
        self.assertRegex(err, r"rank 1\b")

    def test_signal_to_one_rank_stops_all_after_the_same_step(self):
        losses = self.path("losses")
        jobs = [self.start_rank(rank, "epochs=1000", options=("--losses", losses)) for rank in range(2)]
        for line in jobs[0].stderr:
            if "epoch 1:" in line:
                break
        jobs[1].send_signal(signal.SIGTERM)
        ends = self.ends(jobs)
        self.assertEqual([code for code, _, _ in ends], [130, 143])  # asked by its peer, and by the signal
        for _, _, err in ends:
            self.assertIn("stopped on request after step", err)
        steps = [steps_in(f"{losses}.{rank}") for rank in range(2)]
        self.assertGreaterEqual(steps[0], 469)
        self.assertEqual(steps[0], steps[1])


@unittest.skipUnless(os.environ.get("DTORCH_PYTORCH"), "torchrun needs DTORCH_PYTORCH, a Python with torch")
class TorchrunTest(TrainingTest):
    def test_torchrun_starts_our_ranks(self):
        torchrun = os.path.join(os.path.dirname(os.environ["DTORCH_PYTORCH"]), "torchrun")
        done = subprocess.run([torchrun, "--nproc-per-node", "2", "--no-python", *self.command("init_method=env://")],
                              env=self.environment(), capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall("test_accuracy", done.stdout)), 1, done.stdout)


if __name__ == "__main__":
    unittest.main()
