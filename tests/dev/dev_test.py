"""./dev on machines that lack something, played by stand-ins for the programs that would notice."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["DTORCH_SOURCE"])
ALL_INSTALLED = 'shift 2; for name; do printf "installed:%s " "$name"; done'
NONE_INSTALLED = "exit 1"


class DevTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtorch-dev-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name in ("apt-cache", "apt-get", "dpkg", "sudo"):  # the real ones are never reached
            self.stand_in(name, "exit 1")

    def stand_in(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def dev(self, *arguments, **environment):
        code, _, said = self.dev_output(*arguments, **environment)
        return code, said

    def dev_output(self, *arguments, **environment):
        environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.folder), **environment}
        done = subprocess.run([str(SOURCE / "dev"), *arguments], env=environment, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=60, cwd="/")
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr

    def installed_torch(self):
        """A folder that looks like libtorch of our version."""
        root = self.folder / "libtorch"
        (root / "lib").mkdir(parents=True)
        (root / "lib/libtorch_cpu.so").touch()
        header = root / "include/torch/headeronly/version.h"
        header.parent.mkdir(parents=True)
        header.write_text("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n")
        return str(root)

    def test_says_so_when_nothing_is_to_do(self):
        self.stand_in("dpkg-query", ALL_INSTALLED)
        self.assertEqual(self.dev("deps", DTORCH_TORCH_ROOT=self.installed_torch()), (0, "dev: nothing to install\n"))

    def test_help_of_a_command_does_nothing_else(self):
        for command in ("run", "test", "deps", "build", "lint", "format", "bench", "install"):
            for flag in ("--help", "-h"):
                with self.subTest(command=command, flag=flag):
                    home = self.folder / "untouched"
                    code, out, said = self.dev_output(command, flag, HOME=str(home))
                    self.assertEqual((code, said), (0, ""))
                    self.assertTrue(out.startswith(f"  ./dev {command} "), out)
                    self.assertFalse(home.exists())
        self.assertEqual(self.dev("nonsense", "--help")[0], 64)

    def with_optional_package(self, install, identity=0):
        """All is there but dataset-fashion-mnist, which the archive has."""
        self.stand_in("dpkg-query", 'shift 2; for name; do [ "$name" = dataset-fashion-mnist ] || printf "installed:%s " "$name"; done')
        self.stand_in("apt-cache", "exit 0")
        self.stand_in("id", f"echo {identity}")
        self.stand_in("apt-get", install)
        return self.dev("deps", DTORCH_TORCH_ROOT=self.installed_torch())

    def test_an_optional_package_is_installed_when_nothing_else_is_missing(self):
        code, said = self.with_optional_package(f'echo "$*" >> {self.folder}/asked')
        self.assertEqual(code, 0)
        self.assertIn("installing system packages", said)
        self.assertIn("install -y --no-install-recommends dataset-fashion-mnist\n", (self.folder / "asked").read_text())

    def test_an_optional_package_stops_nobody(self):
        code, said = self.with_optional_package("exit 100")
        self.assertEqual(code, 0)
        self.assertIn("dataset-fashion-mnist could not be installed", said)
        shutil.rmtree(self.folder / "libtorch")
        code, said = self.with_optional_package("exit 100", identity=1000)
        self.assertEqual(code, 0)
        self.assertIn("going on without dataset-fashion-mnist, which this user may not install", said)

    def test_names_what_an_administrator_should_install(self):
        self.stand_in("dpkg-query", NONE_INSTALLED)
        self.stand_in("id", "echo 1000")
        code, said = self.dev("deps")
        self.assertEqual(code, 77)
        self.assertRegex(said, r"Ask an administrator to run:\n  apt-get install build-essential .*libgloo-dev.*clang-tidy")

    def test_run_does_not_ask_for_what_only_tests_need(self):
        self.stand_in("dpkg-query", NONE_INSTALLED)
        self.stand_in("id", "echo 1000")
        code, said = self.dev("run")
        self.assertEqual(code, 77)
        self.assertNotIn("clang-tidy", said)

    def failing_apt(self, message):
        self.stand_in("dpkg-query", NONE_INSTALLED)
        self.stand_in("id", "echo 0")
        self.stand_in("apt-get", f'[[ $* != *install* ]] || {{ echo "{message}"; exit 100; }}')
        return self.dev("deps")

    def test_says_that_the_network_is_missing(self):
        code, said = self.failing_apt("E: Failed to fetch something  Temporary failure resolving 'mirror'")
        self.assertEqual(code, 69)
        self.assertIn("is there a network? The same command goes on from here.\nE: Failed to fetch", said)

    def test_says_that_the_disk_is_full(self):
        code, said = self.failing_apt("E: You don't have enough free space in /var/cache/apt/archives/.")
        self.assertEqual(code, 73)
        self.assertIn("Free some space, then run the same command.", said)

    def test_refuses_a_libtorch_of_another_version_by_name(self):
        self.stand_in("dpkg-query", ALL_INSTALLED)
        code, said = self.dev("deps", DTORCH_TORCH_ROOT="/usr")
        self.assertNotEqual(code, 0)
        self.assertIn("DTORCH_TORCH_ROOT (/usr) holds no libtorch 2.11", said)

    def test_names_a_cache_that_cannot_be_made(self):
        (self.folder / "file").touch()
        code, said = self.dev("deps", XDG_CACHE_HOME=str(self.folder / "file"))
        self.assertEqual(code, 73)
        self.assertIn("XDG_CACHE_HOME", said)

    def test_refuses_what_it_does_not_know(self):
        for arguments, words in {
            ("tset",): "there is no './dev tset'",
            ("build", "--preset", "fast"): "there is no preset 'fast'",
            ("build", "--preset"): "--preset wants a name",
            ("install", "here"): "install takes --prefix DIR",
        }.items():
            with self.subTest(arguments):
                code, said = self.dev(*arguments)
                self.assertEqual(code, 64)
                self.assertIn(words, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
