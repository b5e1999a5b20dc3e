"""`dtorch bench`: real ranks over gloo, its tables and formats, and how it fails."""
import csv
import io
import os
import signal

from dtorch_testing import DTORCH, DtorchTest, Running, main, run, wait_until

QUICK = ["-b", "1K", "-e", "64K", "-f", "8", "-n", "3", "-w", "1"]


class Bench(DtorchTest):
    def bench(self, *arguments, **options):
        return run([DTORCH, "bench", *arguments], **options)

    def test_the_table_is_read_as_nccl_tests(self):
        result = self.bench("allreduce", *QUICK, "--backends", "gloo")
        self.assert_exit(result, 0)
        rows = [line.split() for line in result.out.splitlines() if line and not line.startswith("#")]
        self.assertEqual([int(row[0]) for row in rows], [1024, 8192, 65536])
        for row in rows:
            self.assertEqual(int(row[1]) * 4, int(row[0]))
            self.assertEqual(row[2:5], ["float", "sum", "-1"])
            for group in (5, 9):
                time, algbw, busbw, wrong = row[group:group + 4]
                self.assertAlmostEqual(float(algbw), int(row[0]) / float(time) / 1000, delta=0.006)
                self.assertEqual(algbw, busbw)  # the factor of two ranks is 1
                self.assertEqual(wrong, "0")
        self.assertRegex(result.out, r"# Avg bus bandwidth    : [0-9.]+")

    def test_all_collectives_as_json(self):
        result = self.bench("all", "-b", "4K", "-e", "4K", "-n", "2", "--world", "3", "--json")
        self.assert_exit(result, 0)
        rows = {row["operation"]: row for row in result.events("bench")}
        self.assertEqual(len(rows), 10)
        for name, row in rows.items():
            for form in ("out_of_place", "in_place"):
                if row[form] is None:
                    continue
                self.assertEqual(row[form]["wrong"], 0, name)
                self.assertLessEqual(row[form]["min_us"], row[form]["p50_us"])
                self.assertIn(row[form]["slowest_rank"], (0, 1, 2))
        times = rows["allreduce"]["in_place"]
        self.assertAlmostEqual(times["busbw_gb_s"], times["algbw_gb_s"] * 4 / 3)
        self.assertEqual(len(result.events("bench_start")[0]["hosts"]), 3)

    def test_csv(self):
        result = self.bench("broadcast", *QUICK, "--csv", "-r", "1", "-d", "half")
        self.assert_exit(result, 0)
        rows = list(csv.DictReader(io.StringIO(result.out)))
        self.assertEqual([(row["bytes"], row["in_place"]) for row in rows],
                         [(size, form) for size in ("1024", "8192", "65536") for form in "01"])
        self.assertEqual({(row["type"], row["root"], row["wrong"]) for row in rows}, {("float16", "1", "0")})

    def test_expectations_decide_the_exit_code(self):
        self.assert_exit(self.bench("allreduce", *QUICK, "--expect", "allreduce@64KiB<=60s"), 0)
        result = self.bench("allreduce", *QUICK, "--json", "--expect", "allreduce@64KiB>=9999GB/s")
        self.assert_exit(result, 1)
        self.assertIn("GB/s", result.err)
        self.assertEqual([event["met"] for event in result.events("expectation")], [False])

    def test_what_makes_no_sense_is_refused_before_anything_starts(self):
        for arguments, text in [
                (["allreduce", "-b", "2K", "-e", "1K"], "no size from"),
                (["allreduce", "-b", "0"], "no size from"),
                (["allreduce", "-b", "many"], "is no size"),
                (["allreduce", "-i", "0"], "never reaches"),
                (["allreduce", "-i", "1"], "more than"),
                (["allreduce", "-e", str(2**63 - 1), "-f", "1000000", "--expect", "allreduce@5B<=1s"], "nothing that will be timed"),
                (["allreduce", "-f", "1"], "step-factor"),
                (["allreduce", "--timeout", "nan"], "--timeout"),
                (["allrduce"], "no collective"),
                (["reduce", "-r", "2"], "--root"),
                (["allreduce", "-d", "complex"], "datatype"),
                (["allreduce", "--world", "3", "--nnodes", "2"], "evenly"),
                (["allreduce", "--csv", "--json"], "exclude"),
                (["allreduce", "--expect", "allreduce@5MiB>=1GB/s"], "nothing that will be timed"),
                (["allreduce", "--expect", "fast"], "not understood")]:
            with self.subTest(arguments):
                result = self.bench(*arguments)
                self.assert_exit(result, 64)
                self.assertIn(text, result.err)

    def test_an_unknown_backend(self):
        result = self.bench("allreduce", *QUICK, "--backends", "gloo,carrier_pigeon")
        self.assert_exit(result, 64)
        self.assertIn("carrier_pigeon", result.err)

    def test_a_size_that_no_memory_holds(self):
        result = self.bench("allreduce", "-b", "64TiB", "-e", "64TiB", "--world", "1")
        self.assert_exit(result, 71)
        self.assertIn("out of memory: 64 TiB could not be had", result.err)
        self.assertNotIn("enforce fail", result.err)
        self.assertNotIn("loader", result.err)

    def test_timing_nothing_is_no_success(self):
        result = self.bench("allreduce", *QUICK, "-d", "int8", "-o", "avg")
        self.assert_exit(result, 64)
        self.assertIn("nothing could be timed: all_reduce: no average", result.err)

    def test_one_rank_is_warned_of(self):
        result = self.bench("allreduce", *QUICK, "--world", "1")
        self.assert_exit(result, 0)
        self.assertIn("warning: one rank", result.err)

    def test_a_killed_rank_ends_it(self):
        with Running([DTORCH, "bench", "allreduce", "-b", "1K", "-e", "1K", "-n", "1000000", "--json"]) as job:
            wait_until(lambda: "bench_start" in job.text(job.out), 30, "the ranks meet")
            os.kill(job.ranks()[1], signal.SIGKILL)
            result = job.wait(30)
            self.assert_exit(result, 69)
            error = result.events("error")[0]
            self.assertEqual((error["rank"], error["signal"]), (1, signal.SIGKILL))


if __name__ == "__main__":
    main()
