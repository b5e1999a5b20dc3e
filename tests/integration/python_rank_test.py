"""Python programs with plain torch.distributed under dtorch launch. DTORCH_PYTORCH names a Python that has PyTorch; without one
the test is skipped (CI has none)."""
import os
import pathlib
import re
import unittest

import dtorch_testing
from dtorch_testing import DTORCH, SHARED, DtorchTest, run
from train_support import SPEC

PYTORCH = os.environ.get("DTORCH_PYTORCH")
CLIENT = """
import datetime, os, time, torch.distributed as dist
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=datetime.timedelta(seconds=30))
store.set("of_python", "here")
others = 0
while others == 0:  # keys that the ranks of the job have set in the same store
    time.sleep(0.05)
    others = store.num_keys() - 1
print("python sees", others > 0, store.get("of_python").decode(), store.add("count", 5))
"""


@unittest.skipUnless(PYTORCH, "set DTORCH_PYTORCH to a Python with PyTorch")
class PythonRanks(DtorchTest):
    def test_reduce_through_gloo(self):
        result = run([DTORCH, "launch", "-n", 2, "--", PYTORCH, SHARED / "peers" / "allreduce_torch.py"], seconds=120)
        self.assert_exit(result, 0)
        sizes = re.findall(r"^\[rank 0\] (\d+) [\d.]+ [\d.]+$", result.out, re.MULTILINE)
        self.assertEqual((sizes[0], sizes[-1]), ("4", "67108864"), repr(result))

    def test_share_the_store_with_a_dtorch_job(self):
        folder = pathlib.Path(self.new_folder())
        spec, client = folder / "job.yaml", folder / "client.py"
        spec.write_text(SPEC)
        client.write_text(CLIENT)
        script = f"test $RANK = 1 || {PYTORCH} {client} & {DTORCH} run {spec} -s init_method=env:// && wait"
        result = run([DTORCH, "launch", "-n", 2, "--", "sh", "-c", script], seconds=120)
        self.assert_exit(result, 0)
        self.assertIn("python sees True here 5", result.out)
        self.assertIn("test_accuracy", result.out)


if __name__ == "__main__":
    dtorch_testing.main()
