#!/usr/bin/env python3
"""Checks that C++ sources are formatted as .clang-format says; with --fix, formats them."""

import subprocess
import sys

import sources
import tools


def main():
    command = [tools.llvm_tool("clang-format")]
    paths = [str(path) for path in sources.cpp_files()]
    if "--fix" in sys.argv:
        return subprocess.run([*command, "-i", *paths], cwd=sources.ROOT).returncode
    wrong = []
    for path in paths:
        formatted = subprocess.run([*command, path], cwd=sources.ROOT, capture_output=True, text=True, check=True).stdout
        if formatted != sources.read(path):
            wrong.append(f"{path}: not formatted; ./dev format does it")
    return sources.report(wrong)


sys.exit(main())
