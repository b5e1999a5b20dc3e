#!/usr/bin/env python3
"""Checks every shell script with shellcheck."""

import shutil
import subprocess
import sys

import sources


def main():
    if not shutil.which("shellcheck"):
        sys.exit("shellcheck is not installed; ./dev deps installs it")
    scripts = [str(path) for path in sources.shell_scripts()]
    assert "dev" in scripts
    return subprocess.run(["shellcheck", "-x", *scripts], cwd=sources.ROOT).returncode


sys.exit(main())
