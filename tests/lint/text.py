#!/usr/bin/env python3
"""Checks text that belongs in no file of ours: registry hosts, paths of one machine, unfinished work, endless files."""

import re
import sys

import sources

FORBIDDEN = {
    "a package registry's host (name packages only; the machine's settings say where from)": re.compile(
        r"\b(pypi\.org|pythonhosted\.org|(deb|security|snapshot)\.debian\.org|(archive|security)\.ubuntu\.com|download\.pytorch\.org)"
    ),
    "a path of one machine": re.compile(r"(^|[\s\"'=:(`])/(work|root|home/[a-z]\w*)/"),
    "unfinished work": re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b"),
}
MAX_LINES = 500
CODE = (".cpp", ".h", ".py", ".sh", ".cmake")


def main():
    problems = []
    for path in sources.files():
        text = sources.read(path)
        if "\0" in text:
            continue
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            problems += [f"{path}:{number}: {what}: {line.strip()}" for what, pattern in FORBIDDEN.items() if pattern.search(line)]
        if path.suffix in CODE and len(lines) > MAX_LINES:
            problems.append(f"{path}: {len(lines)} lines; over {MAX_LINES} wants a split along meaning")
    return sources.report(problems)


sys.exit(main())
