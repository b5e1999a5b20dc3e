"""What `cmake --install` leaves: a program that runs from anywhere, and a package that another project finds."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["DTORCH_BUILD"])
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(dtorch REQUIRED)
add_executable(user user.cpp)
target_link_libraries(user PRIVATE dtorch::dtorch)
"""
PROGRAM = """
#include <ATen/ATen.h>
int main() { return at::ones({3}).sum().item<float>() == 3 ? 0 : 1; }
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280, **options)
    if done.returncode:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def cmake():
    return re.search(r"^CMAKE_COMMAND:INTERNAL=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE).group(1)


class InstallTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtorch-install-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.prefix = self.folder / "prefix"
        run(cmake(), "--install", BUILD, "--prefix", self.prefix)

    def test_the_program_runs_from_anywhere(self):
        self.assertIn("dtorch", run(self.prefix / "bin/dtorch", "--version", cwd="/"))

    def test_another_project_finds_the_library_and_its_headers(self):
        headers = sorted(path.name for path in (self.prefix / "include/dtorch").glob("*.h"))
        project = self.folder / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(PROJECT)
        (project / "user.cpp").write_text("".join(f"#include <dtorch/{name}>\n" for name in headers) + PROGRAM)
        run(cmake(), "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run(cmake(), "--build", project / "build")
        run(project / "build/user", cwd="/")
        needed = re.findall(r"\(NEEDED\).*\[(lib\w+)", run("readelf", "-d", project / "build/user"))
        self.assertLess(needed.index("libgloo"), needed.index("libtorch_cpu"), "gloo:: would be libtorch's own")


    def test_the_example_of_the_docs_builds_and_trains(self):
        text = (pathlib.Path(os.environ["DTORCH_SOURCE"]) / "docs/library.md").read_text()
        project = self.folder / "project"
        project.mkdir()
        for language, name in (("cmake", "CMakeLists.txt"), ("cpp", "mine.cpp")):
            (project / name).write_text(re.search(rf"```{language}\n(.*?)```", text, re.DOTALL).group(1))
        run(cmake(), "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run(cmake(), "--build", project / "build")
        said = run(self.prefix / "bin/dtorch", "launch", "-n", "2", "--", project / "build/mine", cwd="/")
        losses = [float(loss) for loss in re.findall(r"rank [01]: loss ([0-9.]+)", said)]
        self.assertEqual(len(losses), 2, said)
        for loss in losses:
            self.assertLess(loss, 2.0)  # 2.3 before the first step


if __name__ == "__main__":
    unittest.main(verbosity=2)
