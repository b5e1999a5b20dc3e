#!/usr/bin/env python3
"""Checks who includes whom: the layers of docs/architecture.md, and third-party headers in their owner's folder only."""

import re
import sys

import sources

# Folder -> the folders of ours whose headers it may include, beside its own.
LAYERS = {
    "core/base": "",
    "core/bytes": "core/base",
    "core/job": "core/base",
    "core/launch": "core/base",
    "core/comm": "core/base core/bytes",
    "core/data": "core/base",
    "core/report": "core/base",
    "core/parallel": "core/base core/bytes core/comm",
    "core/train": "core/base core/job core/comm core/data core/parallel",
    "core/bench": "core/base core/bytes core/comm",
    "core/engine": "core/base core/bench core/job core/launch core/comm core/data core/parallel core/train core/report backends/registry",
    "backends/gloo": "core/base core/bytes core/comm",
    "backends/tcp": "core/base core/bytes core/comm",
    "backends/shm": "core/base core/bytes core/comm",
    "backends/registry": "core/base core/comm",
    "cli": "core/base core/job core/launch core/report",
    "include": "core/base core/bytes core/comm core/data core/parallel",
}
# Single headers that are doors between layers.
DOORS = {
    "cli": {"core/engine/engine.h"},
    "backends/registry": {"backends/gloo/factory.h", "backends/shm/factory.h", "backends/tcp/factory.h"},
}
SEES_LIBTORCH = {"core/bench", "core/comm", "core/data", "core/parallel", "core/train", "core/engine", "backends/gloo", "backends/shm", "backends/tcp", "backends/registry", "include"}
LIBTORCH = re.compile(r"(torch|ATen|c10|caffe2)/")
# Third-party header -> the folders that own it. nlohmann's and fmt's are everyone's.
OWNERS = {
    r"gloo/": {"backends/gloo"},
    r"nccl\.h|cuda.*": {"backends/nccl"},
    r"mpi\.h": {"backends/mpi"},
    r"yaml-cpp/": {"core/job"},
    r"CLI/": {"cli"},
    r"curl/|zlib\.h": {"core/data"},
    r"openssl/": {"core/data", "core/engine"},
    r"gtest/|gmock/": set(),
}
EVERYONES = re.compile(r"nlohmann/|fmt/|dtorch/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def folder_of(path):
    top = path.parts[0]
    return "/".join(path.parts[:2]) if top in ("core", "backends") else top


def check_ours(folder, header):
    if header in DOORS.get(folder, ()):
        return None
    parts = header.split("/")
    target = "/".join(parts[:2]) if parts[0] in ("core", "backends") else parts[0]
    if target == folder or target in LAYERS[folder].split():
        return None
    return f"{folder} may not include {target} (may: {LAYERS[folder] or 'nothing of ours'})"


def check_theirs(folder, header):
    if LIBTORCH.match(header):
        return None if folder in SEES_LIBTORCH else f"{folder} may not see libtorch"
    for pattern, owners in OWNERS.items():
        if re.match(pattern, header):
            return None if folder in owners else f"<{header}> belongs in {' '.join(sorted(owners)) or 'tests'} only"
    if EVERYONES.match(header) or "/" not in header or header.startswith(("sys/", "linux/", "net/", "netinet/", "arpa/")):
        return None
    return f"<{header}> has no owner; give it one in tests/lint/includes.py"


def check(path, text):
    """Problems of one file of the program."""
    folder = folder_of(path)
    if folder not in LAYERS:
        return [f"{path}: the folder {folder} has no layer; give it one in tests/lint/includes.py"]
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, header = match.groups()
        ours = kind == '"'
        if ours and not (sources.ROOT / header).is_file() and not (sources.ROOT / "include" / header).is_file():
            problems.append(f"{path}:{number}: \"{header}\" is no path from the top of the project")
            continue
        problem = check_ours(folder, header) if ours and not header.startswith("dtorch/") else check_theirs(folder, header)
        if problem:
            problems.append(f"{path}:{number}: {problem}")
    return problems


def main():
    problems = []
    for path in sources.cpp_files():
        text = sources.read(path)
        if path.suffix == ".h" and not re.search(r"^#pragma once$", text, re.MULTILINE):
            problems.append(f"{path}: a header wants #pragma once")
        if path.parts[0] in ("core", "backends", "cli", "include"):
            problems += check(path, text)
    return sources.report(problems)


if __name__ == "__main__":
    sys.exit(main())
