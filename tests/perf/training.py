#!/usr/bin/env python3
"""Training speed: dtorch beside Python's DistributedDataParallel, the same job on the same machine in one run.

  tests/perf/training.py [--dtorch build/dtorch] [--python V/bin/python] [--data DIR] [--epochs 3] [--rounds 3] [--json]

The job is the tutorial: 784-512-10, ReLU, batch 64 a rank, SGD 0.01, two ranks with one compute thread each, gloo. The two take turns, so
that a machine which drifts slows both; figures are samples/s over all ranks, training only, best and median epoch of all rounds. The first
epoch of each run warms up and does not count. --python is a Python with torch 2.11 and numpy (default $DTORCH_PYTORCH);
without one only dtorch is timed. DIR holds the four MNIST-format .gz files (default: shared/data/mnist, else Fashion-MNIST's package).
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARED = os.environ.get("DTORCH_SHARED", os.path.join(os.path.dirname(ROOT), "shared"))
RANKS = 2
SPEC = """\
version: 1
name: training-speed
backend: {backend}
init_method: tcp://127.0.0.1:0
world_size: {ranks}
seed: 0
model: {{type: mlp, layers: [784, 512, 10], activation: relu}}
dataset: {{type: {dataset}, root: {data}}}
loader: {{batch_size: 64, workers: 1}}
loss: cross_entropy
optimizer: {{type: sgd, lr: 0.01}}
epochs: {epochs}
eval: {{every: 0}}
"""


def arguments():
    default_data = os.path.join(SHARED, "data", "mnist")
    if not os.path.isdir(default_data):
        default_data = "/usr/share/datasets/fashion-mnist"
    parser = argparse.ArgumentParser(description="Training speed beside Python's DistributedDataParallel")
    parser.add_argument("--dtorch", default=os.environ.get("DTORCH", os.path.join(ROOT, "build", "dtorch")))
    parser.add_argument("--python", default=os.environ.get("DTORCH_PYTORCH"))
    parser.add_argument("--peer", default=os.path.join(SHARED, "peers", "ddp_mnist.py"))
    parser.add_argument("--data", default=default_data)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    return parser.parse_args()


def timed_output(command):
    """The command's stdout, and how long it took from start to end."""
    started = time.monotonic()
    result = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS="1"), stdin=subprocess.DEVNULL,
                            capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr}")
    return result.stdout, time.monotonic() - started


def run_dtorch(options):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as spec:
        dataset = "fashion_mnist" if "fashion" in options.data else "mnist"
        spec.write(SPEC.format(ranks=RANKS, dataset=dataset, data=options.data, epochs=options.epochs + 1,
                               backend=options.backend))
        spec.flush()
        out, seconds = timed_output([options.dtorch, "run", spec.name, "--json"])
    events = [json.loads(line) for line in out.splitlines()]
    return [event["samples_per_s"] for event in events if event.get("event") == "epoch"], seconds


def run_peer(options):
    torchrun = os.path.join(os.path.dirname(options.python), "torchrun")
    out, seconds = timed_output([torchrun, "--standalone", "--nproc-per-node", str(RANKS), options.peer, "--data",
                                 options.data, "--epochs", str(options.epochs + 1)])
    return [float(figure) for figure in re.findall(r"samples_per_s (\d+)", out)], seconds


def measure(options):
    contestants = {f"dtorch {options.backend}": run_dtorch}
    if options.python:
        contestants["PyTorch DDP gloo"] = run_peer
    figures = {name: {"epochs": [], "seconds": []} for name in contestants}
    for _ in range(options.rounds):
        for name, run in contestants.items():
            rates, seconds = run(options)
            figures[name]["epochs"] += rates[1:]
            figures[name]["seconds"].append(seconds)
    return {name: {"best_samples_per_s": max(figure["epochs"]),
                   "median_samples_per_s": statistics.median(figure["epochs"]),
                   "command_seconds": statistics.median(figure["seconds"])} for name, figure in figures.items()}


def main():
    options = arguments()
    figures = measure(options)
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{RANKS} ranks, one thread each, {options.epochs} epochs x {options.rounds} rounds, {options.data}")
    print(f"{'':20} {'median samples/s':>17} {'best samples/s':>15} {'whole command':>14}")
    for name, figure in figures.items():
        print(f"{name:20} {figure['median_samples_per_s']:17,.0f} {figure['best_samples_per_s']:15,.0f}"
              f" {figure['command_seconds']:12.1f} s")
    medians = [figure["median_samples_per_s"] for figure in figures.values()]
    if len(medians) == 2:
        print(f"dtorch / PyTorch: {medians[0] / medians[1]:.2f}")
    else:
        print("no Python with torch was given (--python or DTORCH_PYTORCH): nothing to compare with")


if __name__ == "__main__":
    main()
