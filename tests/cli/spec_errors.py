"""Wrong specs as `dtorch run` meets them: exit code 78, the place, the source line, help; stdout stays empty."""
import json
import os
import subprocess
import tempfile
import unittest

DTORCH = os.environ["DTORCH"]
SOURCE = os.environ["DTORCH_SOURCE"]


def run(*arguments, cwd=None, env=None, stdin=""):
    return subprocess.run([DTORCH, "run", *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=60,
                          env={**os.environ, **(env or {})}, check=False)


class SpecErrorsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="dtorch-spec-")
        self.addCleanup(self.folder.cleanup)

    def write(self, text, name="job.yaml"):
        with open(os.path.join(self.folder.name, name), "w", encoding="utf-8") as file:
            file.write(text)
        return name

    def refused(self, *arguments, **keywords):
        done = run(*arguments, cwd=self.folder.name, **keywords)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertNotIn("terminate called", done.stderr)
        return done.stderr

    def test_a_typo_is_shown_like_a_compiler_would(self):
        path = self.write("version: 1\nmodel: mlp\ndataset: mnist\noptimzer: {lr: 1}\n")
        self.assertIn("job.yaml:4:1: error: unknown key 'optimzer'\n    4 | optimzer: {lr: 1}\n      | ^~~~~~~~\n"
                      "help: did you mean 'optimizer'?\n", self.refused(path))

    def test_a_name_that_is_no_text_is_json_all_the_same(self):
        done = run(b"no-such-\xff.yaml", "--json", cwd=self.folder.name)
        self.assertEqual(done.returncode, 78, done.stderr)
        event = json.loads(done.stdout)
        self.assertEqual((event["event"], event["kind"]), ("error", "spec"))

    def test_all_errors_at_once(self):
        path = self.write("version: 1\nmodel: mlp\ndataset: mnist\nepochs: 0\nseed: x\n")
        errors = self.refused(path, "-s", "optimizer.lr=abc")
        self.assertLess(errors.index("job.yaml:4:9"), errors.index("job.yaml:5:7"))
        self.assertLess(errors.index("job.yaml:5:7"), errors.index("-s optimizer.lr=abc: error:"))

    def test_files_that_are_no_specs(self):
        self.assertIn("no such file", self.refused("nothing.yaml"))
        self.assertIn("is a directory", self.refused("."))
        self.assertIn("empty", self.refused(self.write("", "empty.yaml")))
        with open(os.path.join(self.folder.name, "binary.yaml"), "wb") as file:
            file.write(b"\x7fELF\x00\x01")
        self.assertIn("binary file", self.refused("binary.yaml"))

    def test_from_stdin(self):
        self.assertIn("<stdin>:1:1: error:", self.refused("-", stdin="vresion: 1\n"))

    def test_no_colour_codes_in_a_pipe(self):
        self.assertNotIn("\x1b", self.refused(self.write("version: 3\n")))

    def test_json_says_it_too(self):
        done = run(self.write("version: 3\n"), "--json", cwd=self.folder.name)
        self.assertEqual(done.returncode, 78)
        self.assertIn('"event":"error"', done.stdout.replace(" ", ""))


if __name__ == "__main__":
    unittest.main()
