"""A training job from its start to its result: what it reports, how it stops, how it fails."""
import signal
import time
import unittest

from train_support import FASHION, TIMEOUT, TrainingTest, events_of, steps_in


class ResultTest(TrainingTest):
    def test_events_tell_the_whole_story(self):
        events = self.run_job("epochs=2", "optimizer.lr=0.05", "optimizer.momentum=0.9")
        plan = events_of(events, "plan")[0]
        self.assertEqual(plan.get("plan", plan)["steps_per_epoch"], 469)
        self.assertEqual([event["epoch"] for event in events_of(events, "epoch")], [0, 1])
        evals = events_of(events, "eval")
        self.assertEqual([event["samples"] for event in evals], [10000, 10000])
        self.assertEqual({event["rank"] for event in events_of(events, "step")}, {0, 1})
        result = events_of(events, "result")[0]
        self.assertEqual(result["test_accuracy"], evals[-1]["accuracy"])
        self.assertGreater(result["test_accuracy"], 0.8)
        self.assertEqual((result["world_size"], result["backend"], result["dataset"], result["steps"]),
                         (2, "gloo", "fashion_mnist", 938))
        self.assertGreater(result["samples_per_s"], 0)

    def test_accuracy_does_not_depend_on_the_number_of_ranks_that_evaluate(self):
        """The test set's 10,000 images over three ranks are uneven shards: each counts once."""
        accuracy = {}
        for world_size in (1, 3):
            # One step of a whole epoch's images leaves the same model whatever the world size, up to rounding.
            events = self.run_job(f"world_size={world_size}", f"loader.batch_size={60000 // world_size}")
            evaluation = events_of(events, "eval")[0]
            self.assertEqual(evaluation["samples"], 10000)
            accuracy[world_size] = evaluation["accuracy"]
            self.assertEqual(round(evaluation["accuracy"] * 10000, 6) % 1, 0)
        self.assertAlmostEqual(accuracy[1], accuracy[3], delta=0.0005)

    def test_three_ranks_repeat_themselves_bit_for_bit(self):
        first, _ = self.losses("world_size=3", world_size=3)
        second, _ = self.losses("world_size=3", world_size=3)
        self.assertEqual(first, second)


class StopTest(TrainingTest):
    def wait_for_step(self, job):
        for line in job.stdout:
            if '"step"' in line:
                return
        self.fail("the job ended before its first step")

    def test_all_ranks_stop_after_the_same_step(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                losses = self.path("losses")
                job = self.start("epochs=1000", options=("--json", "--losses", losses))
                self.wait_for_step(job)
                job.send_signal(number)
                _, err = job.communicate(timeout=TIMEOUT)
                self.assertEqual(job.returncode, 128 + number, err)
                steps = [steps_in(f"{losses}.{rank}") for rank in range(2)]
                self.assertGreater(steps[0], 0)
                self.assertEqual(steps[0], steps[1])


class FailureTest(TrainingTest):
    def failed(self, *overrides, code):
        job = self.start(*overrides)
        _, err = job.communicate(timeout=TIMEOUT)
        self.assertEqual(job.returncode, code, err)
        self.assertNotIn("frame #", err)
        return err

    def test_divergence_names_rank_and_step(self):
        err = self.failed("optimizer.lr=1e6", code=70)
        self.assertRegex(err, r"rank [01] .*the loss is (nan|inf|-nan) at step \d+")
        self.assertIn("optimizer.lr", err)

    def test_model_that_does_not_fit_is_refused_before_training(self):
        err = self.failed("model.layers=[100, 10]", code=78)
        self.assertIn("the model takes 100 inputs, an image of fashion_mnist has 784", err)
        self.assertIn("28 x 28 pixels", err)

    def test_images_of_ones_own_that_do_not_fit_are_refused_before_training(self):
        files = {name: f"{start}-ubyte.gz" for name, start in (
            ("train_images", "train-images-idx3"), ("train_labels", "train-labels-idx1"),
            ("test_images", "t10k-images-idx3"), ("test_labels", "t10k-labels-idx1"))}
        dataset = ", ".join(f"{name}: {file}" for name, file in files.items())
        err = self.failed(f"dataset={{type: idx, root: {FASHION}, {dataset}}}", "model.layers=[100, 10]", code=78)
        self.assertIn("-s model.layers=[100, 10]: error: the model takes 100 inputs", err)
        self.assertIn("28×28 = 784", err)

    def test_dataset_that_is_not_there_is_named(self):
        err = self.failed("dataset.type=mnist", f"dataset.root={self.folder}/nowhere", code=65)
        self.assertIn("nowhere", err)


class StartTest(TrainingTest):
    def test_first_step_comes_soon(self):
        """1.5 s on a quiet machine; five times that where other tests run beside."""
        started = time.monotonic()
        job = self.start(options=("--json",))
        for line in job.stdout:
            if '"step"' in line:
                break
        self.assertLess(time.monotonic() - started, 7.5)


if __name__ == "__main__":
    unittest.main()
