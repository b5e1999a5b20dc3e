"""dtorch run on several nodes that meet in a folder they share: the launchers are linked through the folder's store."""
import os
import pathlib
import signal
import socket
import time

import dtorch_testing
from dtorch_testing import DTORCH, SLACK, DtorchTest, Running, overrides, wait_until
from train_support import SPEC

HOST = socket.gethostname()


class NodesInAFolder(DtorchTest):
    def setUp(self):
        self.folder = self.new_folder()
        self.meeting = os.path.join(self.folder, "job")
        self.spec = os.path.join(self.folder, "job.yaml")
        text = SPEC.replace("tcp://127.0.0.1:0", f"shared_filesystem://{self.meeting}").replace("batch_size: 64", "batch_size: 1000")
        pathlib.Path(self.spec).write_text(text)

    def node(self, rank, *settings, nnodes=2):
        return Running([DTORCH, "run", self.spec, "--json", "--nnodes", nnodes, "--node-rank", rank, *overrides(settings)],
                       env={"OMP_NUM_THREADS": "1"}, cwd=self.folder)

    def begun(self, job):
        wait_until(lambda: '"event":"step"' in job.text(job.out), 60, "training has begun")

    def test_train_and_leave_nothing(self):
        with self.node(0) as first, self.node(1) as second:
            results = [first.wait(120), second.wait(120)]
        for result in results:
            self.assert_exit(result, 0)
        self.assertEqual(results[0].events("result")[0]["world_size"], 2)
        self.assertFalse(os.path.exists(self.meeting), "the folder that the job made")

    def test_refuse_another_spec(self):
        with self.node(0, "optimizer.lr=0.125") as first, self.node(1, "optimizer.lr=0.25") as second:
            for result in (first.wait(60), second.wait(60)):
                self.assert_exit(result, 76)
                message = self.error_of(result)["message"]
                self.assertIn(f"lr: 0.125' on node 0 ({HOST})", message)
                self.assertIn(f"lr: 0.25' on node 1 ({HOST})", message)
        self.assertFalse(os.path.exists(self.meeting))

    def test_share_the_first_cause(self):
        with self.node(0, "epochs=100000") as first, self.node(1, "epochs=100000") as second:
            self.begun(first)
            os.kill(second.ranks()[1], signal.SIGKILL)
            for result in (first.wait(20), second.wait(20)):
                self.assert_exit(result, 69)
                error = self.error_of(result)
                self.assertEqual((error["rank"], error["signal"], error["host"]), (1, 9, HOST), repr(result))

    def test_name_a_launcher_that_was_killed(self):
        with self.node(0, "epochs=100000") as first, self.node(1, "epochs=100000") as second:
            self.begun(first)
            second.process.kill()
            killed = time.monotonic()
            result = first.wait(20)
            self.assertLess(time.monotonic() - killed, 1 * SLACK)
            self.assert_exit(result, 69)
            self.assertIn(f"the launcher of node 1 ({HOST})", self.error_of(result)["message"])
            self.assertIn("was killed", self.error_of(result)["message"])
            self.assert_nothing_left(second.mark, 2)

    def test_stop_together(self):
        with self.node(0, "epochs=100000") as first, self.node(1, "epochs=100000") as second:
            self.begun(first)
            second.process.send_signal(signal.SIGTERM)
            for result in (first.wait(30), second.wait(30)):
                self.assert_exit(result, 143)

    def test_tell_who_is_missing(self):
        with self.node(0, "timeouts.rendezvous=4s", nnodes=2) as first:
            result = first.wait(30)
            self.assert_exit(result, 124)
            self.assertIn("node 1 of 2 did not come", self.error_of(result)["message"])
            self.assertIn("node 1 of 2 has not come", result.err)
        self.assertFalse(os.path.exists(self.meeting))


if __name__ == "__main__":
    dtorch_testing.main()
