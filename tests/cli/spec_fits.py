"""What a well-formed spec asks for and cannot have: shapes, data, memory, output files. All of it is told before a rank starts, each
at its place."""
import gzip
import os
import unittest

import dtorch_testing
from dtorch_testing import DTORCH, DtorchTest, overrides, run

IDX = """\
version: 1
model: {type: mlp, layers: [6, 3]}
dataset:
  type: idx
  train_images: train-images
  train_labels: train-labels.gz
  test_images: test-images
  test_labels: test-labels
"""
ENV = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def idx(shape, data):
    return bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape) + bytes(data)


class Case(DtorchTest):
    def setUp(self):
        self.folder = self.new_folder()
        self.put("job.yaml", IDX.encode())
        self.put("train-images", idx((6, 2, 3), range(36)))
        self.put("train-labels.gz", gzip.compress(idx((6,), [0, 1, 2, 2, 1, 0])))
        self.put("test-images", idx((2, 2, 3), range(12)))
        self.put("test-labels", idx((2,), [0, 2]))

    def put(self, name, data):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(data)

    def run_job(self, *settings, options=(), env=None):
        result = run([DTORCH, "run", "job.yaml", *overrides(settings), *options], seconds=60, cwd=self.folder,
                     env={"DTORCH_DATA": "", "OMP_NUM_THREADS": "1", **(env or {})})
        self.assertNotIn("frame #", result.err)
        return result

    def refused(self, code, *settings, **keywords):
        result = self.run_job(*settings, **keywords)
        self.assert_exit(result, code)
        self.assertEqual(result.out, "")
        return result.err


class ThreadsTest(Case):
    def test_more_threads_than_the_cores_can_turn_to(self):
        self.put("job.yaml", (IDX + "nodes: {threads: 4096}\n").encode())
        if os.cpu_count() >= 512:
            self.skipTest("here that is no mistake")
        err = self.refused(78)
        self.assertIn("job.yaml:9:18: error: 4096 compute threads a rank are over 8 for each", err)


class ShapesTest(Case):
    def test_the_job_runs_as_it_stands(self):
        result = self.run_job("loader.batch_size=16777216", "eval.batch_size=16777216")
        self.assert_exit(result, 0)
        self.assertIn("1 epoch, 1 steps, 1 rank", result.out)

    def test_every_misfit_of_ones_own_files_is_shown_at_its_place(self):
        self.put("job.yaml", IDX.replace("[6, 3]", "[7, 9, 2]").encode())
        whole = ("job.yaml:2:29: error: the model takes 7 inputs, an image of idx (.) has 2×3 = 6\n"
                 "    2 | model: {type: mlp, layers: [7, 9, 2]}\n"
                 "      |                             ^\n"
                 "help: make the first width 6\n"
                 "job.yaml:2:35: error: the model has 2 outputs, idx (.) has 3 classes\n"
                 "    2 | model: {type: mlp, layers: [7, 9, 2]}\n"
                 "      |                                   ^\n"
                 "help: make the last width 3\n")
        self.assertEqual(self.refused(78, options=["--dry-run"]), whole)
        self.assertEqual(self.refused(78).replace("starting 1 rank\n", ""), whole)
        # As a rank of another launcher, which reads the spec itself.
        self.assertEqual(self.refused(78, "init_method=env://", env=ENV, options=["--dry-run"]), whole)

    def test_a_value_that_is_not_given_or_comes_from_a_flag_is_named_too(self):
        self.put("job.yaml", IDX.replace("{type: mlp, layers: [6, 3]}", "mlp").encode())
        err = self.refused(78, options=["--dry-run"])
        self.assertIn("job.yaml:2:1: error: the model takes 784 inputs", err)
        err = self.refused(78, "model.layers.0=5", options=["--dry-run"])
        self.assertIn("-s model.layers.0=5: error: the model takes 5 inputs", err)

    def test_ranks_without_an_image_are_refused(self):
        err = self.refused(78, "world_size=7", "sampler.drop_last=true", options=["--dry-run"])
        self.assertIn("-s world_size=7: error: no step to train: 6 images over 7 ranks", err)


class DamagedDataTest(Case):
    def test_a_damaged_label_names_file_offset_and_both_values(self):
        self.put("train-labels.gz", gzip.compress(idx((6,), [0, 1, 2, 2, 255, 0])))
        err = self.refused(65, options=["--dry-run"])
        self.assertIn("train-labels.gz: error: unpacked offset 12: expected a label from 0 to 2, as the model has 3 outputs, "
                      "found 255\nhelp: the file seems damaged", err)
        err = self.refused(78, "model.layers.0=5", options=["--dry-run"])  # both
        self.assertIn("-s model.layers.0=5: error: the model takes 5 inputs", err)
        self.assertIn("train-labels.gz: error: unpacked offset 12", err)

    def test_a_damaged_test_label_too(self):
        self.put("test-labels", idx((2,), [0, 200]))
        self.assertIn("test-labels: offset 9: expected a label from 0 to 2, the classes of the training labels, found 200",
                      self.refused(65, options=["--dry-run"]))

    def test_a_short_file_tells_what_it_should_hold(self):
        self.put("train-images", idx((6, 2, 3), range(30)))
        self.assertIn("train-images: offset 4: expected 36 bytes of data (6 x 2 x 3, as the header says), found 30",
                      self.refused(65, options=["--dry-run"]))


class MemoryTest(Case):
    def test_layers_beyond_the_machine(self):
        for options in (["--dry-run"], []):
            err = self.refused(78, "model.layers=[6, 16777216, 16777216, 3]", options=options)
            self.assertRegex(err, r"-s model.layers=\[.*\]: error: the rank on this machine needs about 2.0 PiB of memory in all, "
                                  r"it has [\d.]+ [MGT]iB \(each: model 2.0 PiB, batches .*\)\nhelp: make 'model.layers' smaller")

    def test_ranks_beyond_the_machine_are_not_started(self):
        err = self.refused(78, "world_size=65536")
        self.assertIn("-s world_size=65536: error: 65536 ranks on this machine need about 4.", err)

    def test_numbers_beyond_any_range(self):
        err = self.refused(78, "model.layers.1=1000000000", "loader.batch_size=1000000000")
        self.assertIn("-s model.layers.1=1000000000: error: 'model.layers.1' must be >= 1, <= 16777216", err)
        self.assertIn("-s loader.batch_size=1000000000: error: 'loader.batch_size' must be >= 1, <= 16777216", err)


class OutputTest(Case):
    """Exit 73 before anything starts, not after hours of training."""

    def test_losses_that_cannot_be_written(self):
        os.mkdir(os.path.join(self.folder, "taken.1"))
        for name, reason in (("nowhere/losses", "No such file or directory"), ("job.yaml/losses", "Not a directory"),
                             ("taken", "Is a directory"), ("x" * 300, "File name too long"), ("/proc/losses", "")):
            for options in ([], ["--dry-run"]):
                with self.subTest(name=name, options=options):
                    err = self.refused(73, "world_size=2", options=["--losses", name, *options])
                    self.assertIn(f"error: --losses: cannot write '{name}.", err)
                    self.assertIn(reason, err)

    def test_the_check_leaves_files_as_they_are(self):
        self.put("losses.0", b"of an earlier run\n")
        self.assert_exit(self.run_job(options=["--losses", "losses", "--log-dir", "a/b", "--dry-run"]), 0)
        with open(os.path.join(self.folder, "losses.0"), "rb") as file:
            self.assertEqual(file.read(), b"of an earlier run\n")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "a")))
        self.assert_exit(self.run_job(options=["--losses", "new", "--dry-run"]), 0)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "new.0")))

    def test_a_log_folder_that_cannot_be_made(self):
        for name in ("job.yaml", "job.yaml/logs", "/proc/logs"):
            with self.subTest(name=name):
                self.assertIn(f"error: --log-dir: cannot write '{name}'",
                              self.refused(73, options=["--log-dir", name, "--dry-run"]))


class CommandTest(Case):
    def test_a_mistyped_command_is_suggested(self):
        for word, meant in (("runn", "run"), ("rnu", "run"), ("lauch", "launch"), ("Join", "join")):
            result = run([DTORCH, word, "job.yaml"])
            self.assert_exit(result, 64)
            self.assertEqual(result.err, f"error: unknown command '{word}'\nhelp: did you mean '{meant}'?\n")
        self.assertRegex(run([DTORCH]).err, r"^error: no command is given\nhelp: commands: run, launch, join.*; see dtorch --help\n$")


if __name__ == "__main__":
    dtorch_testing.main()
