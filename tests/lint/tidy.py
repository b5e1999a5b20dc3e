#!/usr/bin/env python3
"""Runs clang-tidy over the program's sources: tidy.py BUILD_FOLDER [SOURCE...].

A file that passed is not looked at again while it, our headers that it includes, its flags and the checks are the same; what passed
is remembered in the cache folder, as hashes. Without GCC's precompiled header, which clang cannot read, files must stand by themselves.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import sources
import tools

JOBS = 2
KEEP_S = 30 * 86400
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# Flags that clang does not take, or that would make its own warnings errors.
NOT_FOR_CLANG = re.compile(r"-include \S*cmake_pch\.hxx|-Winvalid-pch|-fpch-preprocess|-Werror|-fsanitize=\S+|-fno-sanitize\S+")


def commands(build):
    """{source: its compile command without ccache and the precompiled header}."""
    database = json.loads((build / "compile_commands.json").read_text())
    found = {}
    for entry in database:
        file = pathlib.Path(entry["file"])
        # CMake's unity files hold nothing but the includes of the sources that they stand for.
        parts = re.findall(r'^#include "(.*)"', file.read_text(), re.MULTILINE) if "Unity" in file.parts else [file]
        for path in map(pathlib.Path, parts):
            if not path.is_relative_to(sources.ROOT):
                continue
            path = path.relative_to(sources.ROOT)
            if path.parts[0] in ("core", "backends", "cli"):
                found[path] = NOT_FOR_CLANG.sub("", re.sub(r"^.*?(?=\S*(c\+\+|g\+\+)\S* )", "", entry["command"]))
    return found


def closure(path, seen):
    """Adds the path and all of our headers that it includes to `seen`."""
    if path not in seen and (sources.ROOT / path).is_file():
        seen.add(path)
        for header in INCLUDE.findall(sources.read(path)):
            closure(pathlib.Path(header), seen)
            closure(pathlib.Path("include") / header, seen)
    return seen


def key(path, command, tool):
    digest = hashlib.sha256()
    for text in (sources.read(".clang-tidy"), command.replace(str(sources.ROOT), ""), tool):
        digest.update(text.encode() + b"\0")
    for dependency in sorted(closure(path, set())):
        digest.update(f"{dependency}\0{sources.read(dependency)}\0".encode())
    return digest.hexdigest()


def remembered():
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(home) / "dtorch" / "tidy"
    folder.mkdir(parents=True, exist_ok=True)
    for entry in folder.iterdir():
        if time.time() - entry.stat().st_mtime > KEEP_S:
            entry.unlink(missing_ok=True)
    return folder


def run_tidy(tool, paths, command, scratch):
    """What clang-tidy says of these sources, read as one: the headers, which cost most, are then read once."""
    unit = scratch / f"{'_'.join(paths[0].parts[:-1])}_{paths[0].stem}_{len(paths)}.cpp"
    unit.write_text("".join(f'#include "{sources.ROOT / path}"\n' for path in paths))
    arguments = shlex.split(command)[1:]
    found = subprocess.run([tool, "--quiet", str(unit), "--", *arguments], cwd=sources.ROOT, capture_output=True, text=True)
    return "" if found.returncode == 0 else found.stdout + found.stderr


def check(tool, jobs, scratch):
    """Checks the sources of one folder, {path: (command, memo)}. Returns the findings."""
    paths = list(jobs)
    start = time.monotonic()
    findings = run_tidy(tool, paths, jobs[paths[0]][0], scratch)
    if "clang-diagnostic-error" in findings and len(paths) > 1:
        # Two files name different things alike, each in its own anonymous namespace: read fewer at once.
        half = len(paths) // 2
        return "".join(check(tool, {path: jobs[path] for path in part}, scratch) for part in (paths[:half], paths[half:]))
    if not findings:
        for _, memo in jobs.values():
            memo.touch()
    print(f"{paths[0].parent}: {len(paths)} files, {time.monotonic() - start:.0f} s\n{findings}".rstrip(), flush=True)
    return findings


def main():
    build, *only = [pathlib.Path(argument) for argument in sys.argv[1:]]
    tool = tools.llvm_tool("clang-tidy")
    folder = remembered()
    scratch = build / "tidy"
    scratch.mkdir(exist_ok=True)
    groups, unchanged = {}, 0
    for path, command in sorted(commands(build).items()):
        if only and path not in only:
            continue
        memo = folder / key(path, command, tool)
        if memo.exists():
            memo.touch()
            unchanged += 1
        else:
            groups.setdefault(path.parent, {})[path] = (command, memo)
    if not groups and not unchanged:
        sys.exit("nothing to check: no such source in compile_commands.json")
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        largest_first = sorted(groups.values(), key=len, reverse=True)
        findings = "".join(pool.map(lambda jobs: check(tool, jobs, scratch), largest_first))
    print(f"{unchanged} files unchanged, {sum(map(len, groups.values()))} checked")
    return 1 if findings else 0


sys.exit(main())
