#!/usr/bin/env python3
"""Checks what was linked: linking.py DTORCH LIBDTORCH.

The command line must start without libtorch, and gloo:: must mean libgloo: libtorch_cpu exports a newer Gloo of its own, and the
first library in the order of loading wins.
"""

import re
import subprocess
import sys

import sources


def dynamic(path, tag):
    lines = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return [re.search(r"\[(.*)\]", line).group(1) for line in lines if f"({tag})" in line]


def main():
    program, library = sys.argv[1:]
    problems = []
    heavy = [name for name in dynamic(program, "NEEDED") if re.match(r"lib(torch|c10|gloo|dtorch)", name)]
    if heavy:
        problems.append(f"{program} links {' '.join(heavy)}: --help would have to load them")
    needed = [name.split(".")[0] for name in dynamic(library, "NEEDED")]
    if "libgloo" not in needed or "libtorch_cpu" not in needed:
        problems.append(f"{library} wants libgloo and libtorch_cpu, has {' '.join(needed)}")
    elif needed.index("libgloo") > needed.index("libtorch_cpu"):
        problems.append(f"{library} loads libtorch_cpu before libgloo: gloo:: would be libtorch's")
    for path in (program, library):
        for entry in ":".join(dynamic(path, "RUNPATH") + dynamic(path, "RPATH")).split(":"):
            if not entry.startswith(("/", "$ORIGIN")):
                problems.append(f"{path}: the run path holds '{entry}': libraries would load from the current directory")
    return sources.report(problems)


sys.exit(main())
