"""Training follows Python PyTorch: step by step within rounding of values made elsewhere, bit for bit on this machine.

golden/fashion_{relu,none}_w2.R are rank R's losses of Python's first epoch on Fashion-MNIST (torch 2.11, 2 ranks, seed 3, batch 64,
SGD 0.01, one thread a rank). Where the shared folder is, MNIST's values in it are followed too. With DTORCH_PYTORCH=python (one that has
torch 2.11 and numpy) the peer runs here and every last bit is compared.
"""
import itertools
import os
import subprocess
import unittest

from train_support import BACKENDS, FASHION, MNIST, SHARED, TIMEOUT, TrainingTest, events_of, read_losses, worst_relative_error

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
PYTORCH = os.environ.get("DTORCH_PYTORCH")


class Follower(TrainingTest):
    def follow(self, golden, *overrides):
        got, events = self.losses(*overrides)
        for rank in range(2):
            expected = read_losses(f"{golden}.{rank}")[:len(got[rank])]
            self.assertEqual(len(got[rank]), 469)
            self.assertEqual(len(expected), 469)
            self.assertLess(worst_relative_error(got[rank], expected), 1e-4, f"rank {rank}")
        return events_of(events, "result")[0]


class GoldenTest(Follower):
    def test_relu_on_fashion_mnist(self):
        self.follow(os.path.join(GOLDEN, "fashion_relu_w2"))

    def test_linear_on_fashion_mnist(self):
        self.follow(os.path.join(GOLDEN, "fashion_none_w2"), "model.activation=none")


class BackendsTest(TrainingTest):
    def test_all_give_the_same_losses_to_the_last_bit(self):
        expected, _ = self.losses("backend=gloo")
        for backend in BACKENDS[1:]:
            got, events = self.losses(f"backend={backend}")
            self.assertEqual(events_of(events, "result")[0]["backend"], backend)
            self.assertEqual(got, expected, backend)


    def test_a_sharded_optimizer_gives_the_same_numbers_on_all(self):
        settings = ("world_size=3", "epochs=2", "loader.batch_size=200", "optimizer.momentum=0.9",
                    "optimizer.weight_decay=0.001", "model.layers=[784, 33, 10]")
        # Gloo sums in an order of its own at three ranks; the others, and all reduce-scatters, in rank order.
        expected, events = self.losses("backend=tcp", *settings, world_size=3)
        for backend in BACKENDS:
            got, sharded_events = self.losses(f"backend={backend}", "ddp.shard_optimizer=true", *settings, world_size=3)
            self.assertEqual(got, expected, backend)
            # Evaluation sees all of the parameters on every rank.
            for key in ("loss", "accuracy"):
                self.assertEqual([event[key] for event in events_of(sharded_events, "eval")],
                                 [event[key] for event in events_of(events, "eval")], backend)


@unittest.skipUnless(os.path.isdir(MNIST), "MNIST is only beside the project's own checkouts")
class MnistGoldenTest(Follower):
    def on_mnist(self, name, activation, accuracy):
        result = self.follow(os.path.join(SHARED, "golden", name), f"model.activation={activation}", "seed=0",
                             "dataset.type=mnist", f"dataset.root={MNIST}")
        self.assertAlmostEqual(result["test_accuracy"], accuracy, delta=0.002)
        self.assertEqual(result["dataset"], "mnist")

    def test_relu_on_mnist(self):
        self.on_mnist("mnist_relu_w2", "relu", 0.8227)

    def test_linear_on_mnist(self):
        self.on_mnist("mnist_linear_w2", "none", 0.8420)


@unittest.skipUnless(PYTORCH, "bit for bit needs DTORCH_PYTORCH, a Python with torch")
class PeerTest(TrainingTest):
    """The same job by Python's DistributedDataParallel, on this machine."""

    def python_losses(self, seed, batch, activation, lr, momentum):
        torchrun = os.path.join(os.path.dirname(PYTORCH), "torchrun")
        file = self.path("python")
        subprocess.run([torchrun, "--standalone", "--nproc-per-node", "2", os.path.join(SHARED, "peers", "ddp_mnist.py"),
                        "--data", FASHION, "--epochs", "2", "--seed", str(seed), "--batch", str(batch), "--activation",
                        activation, "--lr", str(lr), "--momentum", str(momentum), "--losses", file],
                       check=True, timeout=TIMEOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env=self.environment())
        return [read_losses(f"{file}.{rank}") for rank in range(2)]

    def test_bit_for_bit(self):
        cases = [(0, 64, "none", 0.01, 0), (0, 64, "relu", 0.01, 0), (11, 64, "relu", 0.05, 0.9), (5, 100, "none", 0.02, 0.5),
                 (123456789, 37, "relu", 0.01, 0)]
        for seed, batch, activation, lr, momentum in cases:
            with self.subTest(seed=seed, batch=batch, activation=activation, lr=lr, momentum=momentum):
                expected = self.python_losses(seed, batch, activation, lr, momentum)
                got, _ = self.losses("epochs=2", f"seed={seed}", f"loader.batch_size={batch}",
                                     f"model.activation={activation}", f"optimizer.lr={lr}", f"optimizer.momentum={momentum}")
                for rank in range(2):
                    self.assertEqual(len(got[rank]), len(expected[rank]))
                    differing = sum(a != b for a, b in itertools.zip_longest(got[rank], expected[rank]))
                    self.assertEqual(differing, 0, f"rank {rank}")


if __name__ == "__main__":
    unittest.main()
