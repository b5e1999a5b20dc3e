"""Every spec in configs/ runs as it stands: the whole of mnist.yaml, to the accuracy that it promises, and one epoch of the others.

Nothing is downloaded: MNIST comes from the shared folder where there is one; elsewhere mnist.yaml falls back to Fashion-MNIST, as it says.
"""
import os
import subprocess
import unittest

import dtorch_testing
from dtorch_testing import DTORCH, SHARED, SOURCE, DtorchTest, Running, free_port, overrides, run
from train_support import MNIST, TIMEOUT

CONFIGS = SOURCE / "configs"
HERE = os.path.isdir(MNIST)  # MNIST itself
ENVIRONMENT = {"DTORCH_DATA": str(SHARED / "data") if HERE else "", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
NO_NETWORK = "dataset.mirrors=[http://127.0.0.1:9/]"


def port_is_free(port):
    """Whether this test may use a port that a spec names."""
    return not subprocess.run(["ss", "-Htln", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout.strip()


class ConfigsTest(DtorchTest):
    def command(self, name, *settings, options=()):
        return [DTORCH, "run", CONFIGS / name, "--json", *overrides([NO_NETWORK, *settings]), *options]

    def run_config(self, name, *settings):
        result = run(self.command(name, *settings), seconds=TIMEOUT, env=ENVIRONMENT, cwd=self.new_folder())
        self.assert_exit(result, 0)
        return result.events("result")[0]

    def test_none_is_forgotten(self):
        tested = {name for name in os.listdir(CONFIGS) if hasattr(self, "test_" + name.removesuffix(".yaml").replace("-", "_"))}
        self.assertEqual(tested, set(os.listdir(CONFIGS)))

    def test_mnist(self):
        result = self.run_config("mnist.yaml")
        self.assertEqual((result["world_size"], result["epochs"], result["steps"]), (2, 5, 2345))
        self.assertEqual(result["dataset"], "mnist" if HERE else "fashion_mnist")
        self.assertGreaterEqual(result["test_accuracy"], 0.975 if HERE else 0.85)

    def test_fashion_mlp(self):
        result = self.run_config("fashion-mlp.yaml", "epochs=1")
        self.assertEqual((result["world_size"], result["dataset"]), (2, "fashion_mnist"))
        self.assertGreater(result["test_accuracy"], 0.75)

    def test_tutorial(self):
        settings = ["epochs=1"]
        if not HERE:
            settings.append("dataset=fashion_mnist")  # it has no fallback
        if not port_is_free(23456):
            settings.append("init_method=tcp://localhost:0")
        result = self.run_config("tutorial.yaml", *settings)
        self.assertEqual((result["world_size"], result["backend"], result["steps"]), (4, "gloo", 235))
        self.assertGreater(result["test_accuracy"], 0.7 if HERE else 0.6)

    def test_multi_node(self):
        """As its comment says: both commands in two shells of one machine."""
        settings = ["epochs=1"]
        if not port_is_free(29500):
            settings.append(f"init_method=tcp://127.0.0.1:{free_port()}")
        commands = [self.command("multi-node.yaml", *settings, options=["--nnodes", "2", "--node-rank", rank]) for rank in ("0", "1")]
        folder = self.new_folder()
        with Running(commands[0], env=ENVIRONMENT, cwd=folder) as first, Running(commands[1], env=ENVIRONMENT, cwd=folder) as second:
            ends = [first.wait(TIMEOUT), second.wait(TIMEOUT)]
        for end in ends:
            self.assert_exit(end, 0)
        result = ends[0].events("result")[0]
        self.assertEqual((result["world_size"], result["steps"]), (4, 235))
        self.assertGreater(result["test_accuracy"], 0.7 if HERE else 0.6)


if __name__ == "__main__":
    dtorch_testing.main()
