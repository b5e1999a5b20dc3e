"""Wrong specs as a new user writes them: each ends with exit 78, tells where (line:column) and what, and starts nothing.

A row is the spec (GOOD and what is added to it, or a whole file), then what is said: "LINE:COLUMN: message" and part of the help. A
row may have several errors: all are told, in order.
"""
import os
import re
import unittest

import dtorch_testing
from dtorch_testing import DTORCH, DtorchTest, overrides, run

GOOD = "version: 1\nmodel: mlp\ndataset: fashion_mnist\n"
YAML = "not valid YAML: "

# Added to GOOD, which has three lines.
ADDED = [
    # words
    ("optimzer: {lr: 0.1}", "4:1: unknown key 'optimzer'", "did you mean 'optimizer'?"),
    ("optimizer: {learning_rate: 1}", "4:13: unknown key 'optimizer.learning_rate'", "keys of 'optimizer': type, lr,"),
    ("lr: 0.1", "4:1: unknown key 'lr'", "did you mean 'optimizer.lr'?"),
    ("optimizer:\nlr: 0.1", "5:1: unknown key 'lr'", "did you mean 'optimizer.lr'?"),
    ("optimizer.lr: 0.1", "4:1: unknown key 'optimizer.lr'", "nest it: optimizer: {lr: ...}"),
    ("backend: glo", "4:10: unknown backend 'glo'", "did you mean 'gloo'?"),
    ("backend: GLOO", "4:10: unknown backend 'GLOO'", "did you mean 'gloo'?"),
    ("backend: nccl", "4:10: backend 'nccl' is not available yet in this version", "available: auto, gloo"),
    ("device: gpu", "4:9: device 'gpu' is not available: this build has no CUDA device support yet", "available: auto, cpu"),
    ("optimizer: {type: Adam}", "4:19: optimizer.type 'adam' is not available yet in this version", "available: sgd"),
    ("optimizer: 5", "4:12: 'optimizer.type' must be text, not the number 5", "available: sgd"),
    # types
    ("epochs: five", "4:9: 'epochs' must be an integer, not the text 'five'", ""),
    ("epochs: '5'", "4:9: 'epochs' must be an integer, not the text '5'", "remove the quotes"),
    ("epochs: 1.5", "4:9: 'epochs' must be an integer, not the number 1.5", "write a whole number"),
    ("epochs: true", "4:9: 'epochs' must be an integer, not the truth value true", ""),
    ("epochs: \u201c3\u201d", "4:9: 'epochs' must be an integer, not the text '\u201c3\u201d'", "the character U+201C: write plain ASCII"),
    ("epochs:", "4:1: 'epochs' must be an integer, not nothing", ""),
    ("name: 7", "4:7: 'name' must be text, not the number 7", "put it in quotes: '7'"),
    ("optimizer:\n  - lr: 0.1", "5:3: 'optimizer' must be a section, not a list", "its keys: type, lr"),
    ("sampler: {shuffle: yes}", "4:20: 'sampler.shuffle' must be true or false, not the text 'yes'", "write true"),
    ("sampler: {shuffle: Off}", "4:20: 'sampler.shuffle' must be true or false, not the text 'Off'", "write false"),
    ("sampler: {shuffle: tru}", "4:20: 'sampler.shuffle' must be true or false, not the text 'tru'", "did you mean 'true'?"),
    ("optimizer:\n  lr: 0,05", "5:7: 'optimizer.lr' must be a number, not the text '0,05'", ""),
    # numbers
    ("epochs: 0", "4:9: 'epochs' must be >= 1, <= 1000000, not 0", ""),
    ("world_size: -2", "4:13: 'world_size' must be >= 1, <= 65536, not -2", ""),
    ("loader: {batch_size: 1000000000}", "4:22: 'loader.batch_size' must be >= 1, <= 16777216, not 1000000000", ""),
    ("epochs: 99999999999999999999", "4:9: 'epochs' must be >= 1, <= 1000000, not 99999999999999999999", ""),
    ("optimizer: {lr: .nan}", "4:17: 'optimizer.lr' must be a finite number, not .nan", ""),
    ("optimizer: {lr: -inf}", "4:17: 'optimizer.lr' must be a finite number, not -inf", ""),
    ("timeouts: {init: 999999999999h}", "4:18: 'timeouts.init' must be >= 10ms, <= 720h, not 999999999999h", ""),
    ("timeouts: {init: 0.0001s}", "4:18: 'timeouts.init' must be a duration", "use a smaller unit, without a fraction"),
    ("ddp: {bucket_cap: 99999999999TiB}", "4:19: 'ddp.bucket_cap' must be >= 1KiB, <= 64GiB, not 99999999999TiB", ""),
    ("optimizer: {lr: 1e999}", "4:17: 'optimizer.lr' must be > 0, <= 1e6, not 1e999", ""),
    ("optimizer: {momentum: 1.5}", "4:23: 'optimizer.momentum' must be >= 0, <= 1, not 1.5", ""),
    # units
    ("timeouts: {collective: 30}", "4:24: 'timeouts.collective' must be a duration such as 30s, 500ms, 2min or 1h, not the number 30",
     "add a unit: 30s"),
    ("timeouts: {collective: 5 minutes}", "4:24: 'timeouts.collective' must be a duration", "write 5min"),
    ("timeouts: {collective: 5MiB}", "4:24: 'timeouts.collective' must be a duration", ""),
    ("ddp: {bucket_cap: 25M}", "4:19: 'ddp.bucket_cap' must be a size", "write 25MiB"),
    # YAML
    ("epochs: 1\nseed: 2\nepochs: 3", "6:1: duplicate key 'epochs'", "it was first given in line 4"),
    ("optimizer: {lr: 1, lr: 2}", "4:20: duplicate key 'lr'", "line 4"),
    ("optimizer:\n  <<: {lr: 1}", "5:3: YAML merge keys (<<) are not allowed", "use 'extends: other.yaml'"),
    ("optimizer: &o {lr: 1}", "4:12: YAML anchors (&name) are not allowed", "write the value out"),
    ("backend: *n", f"4:10: {YAML}anchors (&name) and aliases (*name) are not allowed", "in quotes"),
    ("epochs: !!int 3", "4:9: YAML tags (!name) are not allowed", "remove the tag"),
    ("name: !!python/object:os.system x", "4:7: YAML tags (!name) are not allowed", "remove the tag"),
    ("optimizer:\n\tlr: 0.1", f"5:1: {YAML}a tab in the indentation", "indent with spaces"),
    ("optimizer:\n  type: sgd\n\tlr: 0.1", f"6:1: {YAML}a tab in the indentation", "indent with spaces"),
    ("optimizer:\n  type: sgd\n    lr: 0.1", f"6:5: {YAML}indented deeper than the line above", "the same column"),
    ("optimizer:\n    type: sgd\n  lr: 0.1", f"6:3: {YAML}indented unlike every line above", "the same column"),
    ("seed 1\nepochs: 3", f"4:1: {YAML}a line without a ':'", "write 'seed: 1'"),
    ("optimizer:\n  lr 0.1\n  type: sgd", f"5:3: {YAML}a line without a ':'", "write 'lr: 0.1'"),
    ("epochs 5", "4:1: unknown key 'epochs 5'", "write 'epochs: 5'"),
    ("epochs:5", "4:1: unknown key 'epochs:5'", "write 'epochs: 5': a space follows the ':'"),
    ("epochs = 5", "4:1: unknown key 'epochs = 5'", "write 'epochs: 5'"),
    ("optimizer: {lr: 0.1", f"4:12: {YAML}a '{{' without its '}}'", "close it with '}'"),
    ("optimizer: {lr: 0.1}}", f"4:21: {YAML}a '}}' that closes no '{{'", "remove it"),
    ("name: 'abc", f"4:7: {YAML}a quote (') without its end", "close it"),
    ("name: a: b", f"4:8: {YAML}a second ': ' in one line", "put the value in quotes"),
    ("name: @x", f"4:7: {YAML}a value cannot begin with '@'", "put it in quotes"),
    ("---\nversion: 1", "4:1: a second YAML document", "remove the '---'"),
    ("optimizer: {lr: ${env:LR}}", f"4:17: {YAML}'${{' inside [ ] or {{ }}", 'put the value in quotes: "${env:NAME}"'),
    ("epochs: ${env:DTORCH_NO_SUCH}", "4:9: environment variable DTORCH_NO_SUCH is not set", "give a default"),
    ("optimizer:\n\u00a0 lr: 1", "5:1: unknown key", "it has the character U+00A0"),
    ("name: a\x1b[31mb", "4:8: control character U+001B", "remove it"),
    # what belongs together
    ("optimizer: {nesterov: true}", "4:23: nesterov needs a momentum above 0", "'optimizer.momentum'"),
    ("init_method: localhost:29500", "4:14: ", "tcp://HOST:PORT"),
    ("world_size: 4\nnodes: {hosts: ['a:2', b]}\ninit_method: env://",
     "4:13: 'world_size' is 4, the slots of 'nodes.hosts' add up to 3", "set world_size: 3"),
    ("extends: nothing.yaml\nepochs: x", ["4:10: no such file: 'nothing.yaml'", "5:9: 'epochs' must be an integer"], ""),
    ("extends: job.yaml\nepochs: x", ["4:10: 'job.yaml' extends itself", "5:9: 'epochs' must be an integer"], ""),
    ("epochs: 0\nseed: x\nlos: mse", ["4:9: 'epochs' must be", "5:7: 'seed' must be", "6:1: unknown key 'los'"], "did you mean 'loss'?"),
]

WHOLE = [
    ("", "1:1: the job spec is empty", "start with: version: 1"),
    ("# nothing yet\n", "1:1: the job spec is empty", "start with: version: 1"),
    ("- version: 1\n", "1:1: a job spec is made of 'key: value' lines, not a list", "start with: version: 1"),
    ("''\n", "1:1: a job spec is made of 'key: value' lines, not the text ''", ""),
    ("[model]\ntype = 'mlp'\n", f"2:1: {YAML}text after its end", "'key: value' lines"),
    ("version: 1\nmodel mlp\ndataset: mnist\n", f"2:1: {YAML}a line without a ':'", "write 'model: mlp'"),
    ("version: 1\n model: mlp\n", f"2:2: {YAML}indented deeper than the line above", "the same column"),
    ("version: 1\n", ["1:1: missing key 'model'", "1:1: missing key 'dataset'"], "for example 'dataset: mnist'"),
    ("version: 2\nmodel: mlp\ndataset: mnist\n", "1:10: 'version' must be 1, not 2", ""),
    ("version: 1\nmodel: mlp\ndataset: mnits\n", "3:10: unknown dataset.type 'mnits'", "did you mean 'mnist'?"),
    ("version: 1\nmodel: {type: mlp, layers: [100, 5]}\ndataset: mnist\n",
     ["2:29: the model takes 100 inputs, an image of mnist has 784", "2:34: the model has 5 outputs, mnist has 10 classes"],
     "the last of 'model.layers' must be 10"),
    ("version: 1\nmodel: {type: mlp, layers: '784,512,10'}\ndataset: mnist\n",
     "2:28: 'model.layers' must be a list of integers, not the text '784,512,10'", "write [784, 512, 10]"),
    ("version: 1\nmodel: {type: mlp, layers: [784, -5, 10]}\ndataset: mnist\n", "2:34: 'model.layers.1' must be >= 1", ""),
    ("version: 1\nmodel: {type: mlp, layers: [784, 10}\ndataset: mnist\n", f"2:28: {YAML}a '[' without its ']'", "close it with ']'"),
    ("\ufeff" + GOOD + "epochs: x\n", "4:9: 'epochs' must be an integer", ""),
    ((GOOD + "epochs: x\n").replace("\n", "\r\n"), "4:9: 'epochs' must be an integer", ""),
    ((GOOD + "epochs: x\n").replace("\n", "\r"), "1:11: a carriage return that ends no line", "line feed"),
    (GOOD + "name: a\0b\n", "4:8: a binary file, not YAML (it has a zero byte)", "UTF-8"),
    (GOOD.encode("utf-16"), "1:1: text in UTF-16, not UTF-8", "save it as UTF-8"),
    (GOOD.encode("utf-32"), "1:1: text in UTF-32, not UTF-8", "save it as UTF-8"),
    (GOOD.encode() + b"name: J\xf6rg\n", "4:8: not UTF-8 text (byte 0xF6)", "UTF-8"),
    ("version: " + "[" * 100 + "]" * 100, "1:73: nested over 64 deep", ""),
    ("[" * 200_000, "1:33: nested over 64 deep", ""),
    ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n" + GOOD,
     ["1:1: unknown key 'a'", "1:4: YAML anchors", "2:1: unknown key 'b'", "2:4: YAML anchors", "2:8: YAML aliases", "2:12: YAML aliases",
      "3:1: unknown key 'c'", "3:5: YAML aliases", "3:9: YAML aliases"], ""),
]

FLAGS = [
    ("optimizr.lr=1", "unknown key 'optimizr'", "did you mean 'optimizer'?"),
    ("optimizer.lrr=1", "unknown key 'optimizer.lrr'", "did you mean 'optimizer.lr'?"),
    ("lr=0.1", "unknown key 'lr'", "did you mean 'optimizer.lr'?"),
    ("epochs", "an override is written key=value", "-s optimizer.lr=0.1"),
    ("optimizer..lr=1", "an override is written key=value", ""),
    ("optimizer.lr=abc", "'optimizer.lr' must be a number, not the text 'abc'", ""),
    ("optimizer.lr=", "'optimizer.lr' must be a number, not nothing", ""),
    ("epochs.x=1", "'epochs' must be an integer, not a section", ""),
    ("model.layers.5=1", "'model.layers' is a list of 3: '5' is none of its places", "write 0 to 2, or 3 to append"),
    ("model.layers.x=1", "'model.layers' is a list of 3: 'x' is none of its places", "write 0 to 2, or 3 to append"),
    ("model.layers[1]=5", "unknown key 'model.layers[1]'", "is written model.layers.0"),
    ("nodes.hosts.3=a", "'nodes.hosts' is a list of 0: '3' is none of its places", "write 0 to begin it"),
    ("nodes.hosts.0=a:2", "'world_size' is 1, the slots of 'nodes.hosts' add up to 2", "set world_size: 2"),
    ("name='5", f"{YAML}a quote (') without its end", ""),
    ("seed=&a 1", "YAML anchors", ""),
    ("extends=a.yaml", "'extends' stands in a file", ""),
]


class WrongSpecsTest(DtorchTest):
    def setUp(self):
        self.folder = self.new_folder()

    def put(self, spec, name="job.yaml"):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(spec if isinstance(spec, bytes) else spec.encode())

    def refused(self, *arguments):
        result = run([DTORCH, "run", *arguments], cwd=self.folder)
        self.assert_exit(result, 78)
        self.assertEqual(result.out, "")
        self.assertNotRegex(result.err, r"terminate called|frame #|Traceback|internal error|starting")
        return result.err

    def check(self, spec, expected, hint):
        for tail in ("\n", ""):  # with and without an end of the last line
            text = spec + tail if isinstance(spec, str) and spec and not spec.endswith("\n") else spec
            with self.subTest(spec=text[:200]):
                self.put(text)
                err = self.refused("job.yaml")
                told = re.findall(r"^job\.yaml:(\d+:\d+): error: (.*)$", err, re.MULTILINE)
                wanted = [expected] if isinstance(expected, str) else expected
                self.assertEqual(len(told), len(wanted), err)
                for (place, message), want in zip(told, wanted):
                    self.assertTrue(f"{place}: {message}".startswith(want), f"{want!r} is not what was said:\n{err}")
                self.assertTrue(not hint or re.search(f"^help: .*{re.escape(hint)}", err, re.MULTILINE), f"no {hint!r}:\n{err}")

    def test_there_are_thirty_and_more(self):
        self.assertGreater(len(ADDED) + len(WHOLE) + len(FLAGS), 90)
        self.put(GOOD)
        self.assert_exit(run([DTORCH, "run", "job.yaml", "--dry-run", *overrides(["dataset.root=/usr/share/datasets/fashion-mnist"])],
                             cwd=self.folder), 0)

    def test_added_to_a_good_spec(self):
        for added, expected, hint in ADDED:
            self.check(GOOD + added, expected, hint)

    def test_whole_files(self):
        for spec, expected, hint in WHOLE:
            self.check(spec, expected, hint)

    def test_flags(self):
        self.put(GOOD)
        for flag, message, hint in FLAGS:
            with self.subTest(flag=flag):
                err = self.refused("job.yaml", "-s", flag)
                self.assertTrue(err.startswith(f"-s {flag}: error: {message}"), err)
                self.assertIn(hint, err)

    def test_files_that_are_no_files(self):
        self.put("#" * (1 << 20) + GOOD, "huge.yaml")
        os.mkfifo(os.path.join(self.folder, "pipe"))
        self.put(GOOD, "job.yaml")
        for name, said in (("nothere.yaml", "no such file: 'nothere.yaml'"), ("job.yml", "did you mean 'job.yaml'?"),
                           (".", "'.' is a directory, not a job spec\nhelp: name a file in it: ./huge.yaml, ./job.yaml"),
                           ("huge.yaml", "'huge.yaml' is over 1 MiB"), ("/proc/self/mem", "cannot read '/proc/self/mem': Input/output error"),
                           ("pipe", "pipe:1:1: error: the job spec is empty"), ("", "no such file: ''")):
            with self.subTest(name=name):
                self.assertIn(said, self.refused(name))

    @unittest.skipIf(os.geteuid() == 0 and not os.path.exists("/usr/bin/setpriv"), "root reads every file")
    def test_a_file_that_may_not_be_read(self):
        self.put(GOOD)
        os.chmod(os.path.join(self.folder, "job.yaml"), 0)
        os.chmod(self.folder, 0o755)
        as_nobody = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        result = run([*as_nobody, DTORCH, "run", os.path.join(self.folder, "job.yaml")], cwd="/")
        self.assert_exit(result, 78)
        self.assertIn("job.yaml': Permission denied", result.err)

    def test_a_cycle_of_files(self):
        self.put("extends: b.yaml\nepochs: x\n", "a.yaml")
        self.put("extends: a.yaml\n" + GOOD, "b.yaml")
        err = self.refused("a.yaml")
        self.assertIn("b.yaml:1:10: error: 'a.yaml' extends itself, directly or through others", err)
        self.assertIn("a.yaml:2:9: error: 'epochs' must be an integer", err)


if __name__ == "__main__":
    dtorch_testing.main()
