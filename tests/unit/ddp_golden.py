#!/usr/bin/env python3
"""Makes ddp_golden.h: what PyTorch's DistributedDataParallel leaves in .grad on 2 Gloo ranks. Needs PyTorch 2.11; tests do not run it.

  python3 ddp_golden.py > ddp_golden.h     # then clang-format -i ddp_golden.h

The model and its inputs are those of ddp_models.h. Every gradient comes from single multiplications and additions, so that
the bits do not depend on the processor.
"""
import json, os, socket, sys, tempfile
import torch, torch.nn as nn, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

SIZES = {"a": 5, "b": 3, "c": 4, "d": 2}


def coefficients(rank, step, k, n):
    return torch.arange(1, n + 1, dtype=torch.float32) * float((rank + 1) * (step + 2) * (k + 3)) / 7.0


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        for k, (name, size) in enumerate(SIZES.items()):
            setattr(self, name, nn.Parameter(torch.arange(size, dtype=torch.float32) + k))

    def forward(self, rank, step, use="abcd"):
        return sum((getattr(self, n) * coefficients(rank, step, k, SIZES[n])).sum() for k, n in enumerate(SIZES) if n in use)


def hexes(tensor): return [] if tensor is None else [float(v).hex() for v in tensor.detach().flatten()]
def grads(model): return {name: hexes(p.grad) for name, p in model.module.named_parameters()}
def wrap(module, **options): return DistributedDataParallel(module, bucket_cap_mb=20 / (1 << 20), **options)


def averages(rank, out):
    model = wrap(Bag())
    model(rank, 0).backward(); out["average"] = grads(model)
    model(rank, 1).backward(); out["accumulate"] = grads(model)
    model.zero_grad()
    with model.no_sync(): model(rank, 0).backward(); model(rank, 1).backward()
    model(rank, 2).backward(); out["no_sync"] = grads(model)
    model.zero_grad(set_to_none=False)
    with model.no_sync(): model(rank, 1).backward()
    model(rank, 0).backward(); out["no_sync_zeroed"] = grads(model)


def unused(rank, out):
    model = wrap(Bag(), find_unused_parameters=True)
    model(rank, 0, "abc" if rank == 0 else "ab").backward(); out["unused_0"] = grads(model)
    model(rank, 1, "abcd").backward(); out["unused_1"] = grads(model)
    model(rank, 2, "ab" if rank == 0 else "abc").backward(); out["unused_2"] = grads(model)
    model.zero_grad()
    with model.no_sync(): model(rank, 0, "abcd" if rank == 1 else "ac").backward()
    model(rank, 1, "ab").backward(); out["unused_no_sync"] = grads(model)


def static(rank, out):
    model = wrap(Bag(), static_graph=True)
    for step in range(3):
        model.zero_grad(); model(rank, step, "abc" if rank == 0 else "ab").backward(); out[f"static_{step}"] = grads(model)


def hooks(rank, out):
    for name in ("fp16", "bf16"):
        model = wrap(Bag()); model.register_comm_hook(None, getattr(default_hooks, f"{name}_compress_hook"))
        model(rank, 0).backward(); model(rank, 1).backward(); out[name] = grads(model)


def buffers(rank, out):
    model = DistributedDataParallel(nn.BatchNorm1d(2))
    def x(step): return torch.tensor([[1., 2.], [3., 8.], [5., 4.], [7., 2.]]) * (rank + 1) + step
    def show(step): out[f"buffers_{step}"] = {"mean": hexes(model.module.running_mean), "var": hexes(model.module.running_var)}
    for step in range(8):
        if step == 2:
            with model.no_sync(): model(x(step)).sum().backward()
        elif step == 5:
            model.eval()
            with torch.no_grad(): model(x(step))
            model.train()
        else: model(x(step)).sum().backward()
        show(step)


def join(rank, out):
    for initial in (True, False):
        model = wrap(Bag()); optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
        with model.join(divide_by_initial_world_size=initial):
            for step in range(3 if rank == 0 else 1):
                optimizer.zero_grad(); model(rank, step).backward(); optimizer.step()
        out["join_initial" if initial else "join_active"] = {n: hexes(p) for n, p in model.module.named_parameters()}


def main(rank, port, folder):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    out = {}
    for scenario in (averages, unused, static, hooks, buffers, join): scenario(rank, out)
    dist.barrier()
    with open(f"{folder}/{rank}", "w") as file: json.dump(out, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, args=(port, folder), nprocs=2)
        ranks = [json.load(open(f"{folder}/{rank}")) for rank in range(2)]
    print("// Made by ddp_golden.py with PyTorch %s: tensors by scenario and rank; no values: no gradient." % torch.__version__.split("+")[0])
    print("#pragma once\n#include <map>\n#include <string>\n#include <vector>\n\nnamespace dtorch::golden {\n")
    print("using Values = std::map<std::string, std::vector<float>>;\n")
    print("inline const std::map<std::string, std::vector<Values>> kDdp{")
    for name in ranks[0]:
        parts = [", ".join('{"%s", {%s}}' % (n, ", ".join(v.replace("0000000p", "p") + "F" for v in values)) for n, values in rank[name].items()) for rank in ranks]
        print('{"%s", {{%s}, {%s}}},' % (name, *parts))
    print("};\n\n}  // namespace dtorch::golden")
