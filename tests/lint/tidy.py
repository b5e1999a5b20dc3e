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
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(sources.ROOT):
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


def check(tool, path, command, memo):
    """(path, seconds, findings); seconds is 0 where the result was remembered."""
    if memo.exists():
        memo.touch()
        return path, 0.0, ""
    start = time.monotonic()
    arguments = shlex.split(command)[1:]
    found = subprocess.run([tool, "--quiet", str(path), "--", *arguments], cwd=sources.ROOT, capture_output=True, text=True)
    if found.returncode == 0:
        memo.touch()
    return path, time.monotonic() - start, "" if found.returncode == 0 else found.stdout + found.stderr


def main():
    build, *only = [pathlib.Path(argument) for argument in sys.argv[1:]]
    tool = tools.llvm_tool("clang-tidy")
    folder = remembered()
    jobs = {path: command for path, command in commands(build).items() if not only or path in only}
    if not jobs:
        sys.exit("nothing to check: no such source in compile_commands.json")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        results = [pool.submit(check, tool, path, command, folder / key(path, command, tool)) for path, command in jobs.items()]
        for result in concurrent.futures.as_completed(results):
            path, seconds, findings = result.result()
            failed += bool(findings)
            print(f"{path}: {f'{seconds:.1f} s' if seconds else 'unchanged'}\n{findings}".rstrip(), flush=True)
    print(f"{len(jobs)} files, {failed} with findings")
    return 1 if failed else 0


sys.exit(main())
