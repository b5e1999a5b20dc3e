"""Two processes of a program that uses dtorch as a library, through include/dtorch alone."""
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join(os.environ["DTORCH_BUILD"], "public_api")


class PublicApi(unittest.TestCase):
    def test_every_function_between_two_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen([PROGRAM, f"file://{folder}/meeting", str(rank)], text=True, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"})
                     for rank in range(2)]
            try:
                texts = [rank.communicate(timeout=100)[0] for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
                    rank.wait()
            self.assertEqual([(rank.returncode, text) for rank, text in zip(ranks, texts)], [(0, "done\n")] * 2)


if __name__ == "__main__":
    unittest.main()
