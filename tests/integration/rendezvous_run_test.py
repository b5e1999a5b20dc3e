"""`dtorch run` over every init_method: training works, and each way to fail is told, soon and by name."""
import os
import shutil
import signal
import socket
import struct
import tempfile

import dtorch_testing
from dtorch_testing import DTORCH, SLACK, DtorchTest, Running, free_port, overrides

SPEC = """\
version: 1
name: test
backend: gloo
init_method: {method}
world_size: 2
model: {{type: mlp, layers: [16, 8, 2]}}
dataset: {{type: idx, root: {root}, train_images: images, train_labels: labels, test_images: images, test_labels: labels}}
loader: {{batch_size: 4}}
eval: {{batch_size: 8}}
optimizer: {{type: sgd, lr: 0.1}}
epochs: 1
timeouts: {{rendezvous: {patience}, shutdown: 1s}}
"""
SOON = 5 * SLACK


def write_data(folder):
    """32 images of 4 x 4 pixels in two classes."""
    with open(os.path.join(folder, "images"), "wb") as file:
        file.write(struct.pack(">HBBIII", 0, 8, 3, 32, 4, 4) + bytes((i * 37 + 11 * (i % 2)) % 256 for i in range(512)))
    with open(os.path.join(folder, "labels"), "wb") as file:
        file.write(struct.pack(">HBBI", 0, 8, 1, 32) + bytes(i % 2 for i in range(32)))


class Methods(DtorchTest):
    def setUp(self):
        self.folder = self.new_folder()
        write_data(self.folder)
        self.meeting = os.path.join(self.folder, "meeting")

    def methods(self):
        port = free_port()
        return {"file": f"file://{self.meeting}", "shared_filesystem": f"shared_filesystem://{self.meeting}",
                "name": f"tcp://localhost:{port}", "v6": f"tcp://[::1]:{port}"}

    def start(self, method, *settings, patience="30s", options=(), env=None):
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".yaml", delete=False) as file:
            spec = file.name
            file.write(SPEC.format(method=method, root=self.folder, patience=patience))
        return Running([DTORCH, "run", spec, "--json", *options, *overrides(settings)],
                       env={"OMP_NUM_THREADS": "1", **(env or {})}, cwd=self.folder)

    def rank(self, number, port, *settings, host="127.0.0.1", **options):
        """A rank of env://, as another launcher starts it."""
        return self.start("env://", *settings, env={"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number),
                                                    "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": host,
                                                    "MASTER_PORT": str(port)}, **options)

    def failed(self, job, code, *texts):
        with job:
            result = job.wait(60)
        self.assert_exit(result, code)
        self.assertLess(result.seconds, SOON, repr(result))
        for text in texts:
            self.assertIn(text, result.out + result.err)
        self.assert_nothing_left(result.mark)

    def test_train(self):
        for method in self.methods().values():
            with self.subTest(method), self.start(method) as job:
                result = job.wait(60)
                self.assert_exit(result, 0)
                self.assertEqual(result.events("result")[0]["world_size"], 2)
                self.assertFalse(os.path.exists(self.meeting))
        port = free_port()
        with self.rank(0, port, host="localhost") as zero, self.rank(1, port, host="localhost") as one:
            self.assert_exit(zero.wait(60), 0)
            self.assert_exit(one.wait(60), 0)

    def test_another_world_size_is_shown(self):
        for method in self.methods().values():
            with self.subTest(method), \
                    self.start(method, options=("--nnodes", "2", "--node-rank", "0")) as first, \
                    self.start(method, "world_size=4", options=("--nnodes", "2", "--node-rank", "1")) as second:
                for job in (second, first):
                    result = job.wait(60)
                    self.assert_exit(result, 76)
                    self.assertIn("world_size: 4", result.err)
                    self.assertLess(result.seconds, SOON, repr(result))

    def test_a_rank_that_does_not_come_is_named(self):
        for method in self.methods().values():
            with self.subTest(method):
                self.failed(self.start(method, patience="1s", options=("--nnodes", "2")), 124, "node 1")
        self.failed(self.rank(0, free_port(), patience="1s"), 124, "rank 1")

    def test_a_busy_port_is_named_with_its_owner(self):
        for host, family in (("127.0.0.1", socket.AF_INET), ("localhost", socket.AF_INET), ("[::1]", socket.AF_INET6)):
            with socket.socket(family) as holder:
                holder.bind((host.strip("[]"), 0))
                holder.listen()
                port = holder.getsockname()[1]
                with self.subTest(host):
                    self.failed(self.start(f"tcp://{host}:{port}"), 71, f"port {port}", f"pid {os.getpid()}")
                    if family == socket.AF_INET:
                        self.failed(self.rank(0, port, host=host), 71, f"port {port}", f"pid {os.getpid()}")

    def test_a_stale_file_is_named(self):
        with open(self.meeting, "w") as file:
            file.write("left by another program")
        for scheme in ("file", "shared_filesystem"):
            self.failed(self.start(f"{scheme}://{self.meeting}"), 73, self.meeting, "23 bytes")

    def test_what_a_killed_run_left_is_named(self):
        for scheme in ("file", "shared_filesystem"):
            with self.subTest(scheme), self.start(f"{scheme}://{self.meeting}", "epochs=1000000") as job:
                dtorch_testing.wait_until(lambda: '"event":"step"' in job.text(job.out), 30, "training has begun")
                job.process.kill()
                self.assert_nothing_left(job.mark, 5)
            self.failed(self.start(f"{scheme}://{self.meeting}"), 73, self.meeting, "is dead: left over", "rm -r")
            shutil.rmtree(self.meeting)


if __name__ == "__main__":
    dtorch_testing.main()
