"""The project's own files, for the lint tests: everything outside build folders, data and .git."""

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
IGNORED = re.compile(r"(build.*|data|runs|\.cache|\.git)")  # of the top folder, as in .gitignore


def files(*suffixes):
    """Paths relative to ROOT, sorted; all files if no suffix is given."""
    found = []
    for folder, subfolders, names in os.walk(ROOT):
        here = pathlib.Path(folder).relative_to(ROOT)
        if here == pathlib.Path("."):
            subfolders[:] = [name for name in subfolders if not IGNORED.fullmatch(name)]
            names = [name for name in names if not IGNORED.fullmatch(name) and name != "compile_commands.json"]
        subfolders[:] = [name for name in subfolders if name != "__pycache__"]
        found += [here / name for name in names if not suffixes or name.endswith(suffixes)]
    return sorted(found)


def cpp_files():
    return files(".cpp", ".h")


def shell_scripts():
    return [path for path in files() if path.suffix == ".sh" or re.match(rb"#!.*\b(ba)?sh\b", first_line(path))]


def first_line(path):
    with open(ROOT / path, "rb") as file:
        return file.readline(200)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def report(problems):
    """Prints the problems, one a line, and returns the exit status."""
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problem(s)")
    return 1 if problems else 0
