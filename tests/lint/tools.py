"""The checkers that the lint tests call."""

import re
import shutil
import subprocess
import sys

SKIPPED = 77  # ctest's SKIP_RETURN_CODE for these tests
LLVM = 14  # formatting and findings change with every release; this one (Debian 12's) defines ours


def llvm_tool(name):
    """The path of clang-format or clang-tidy of the defining release. Skips the test where only another one is installed."""
    found = []
    for candidate in (f"{name}-{LLVM}", name):
        path = shutil.which(candidate)
        if path:
            version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            major = re.search(r"version (\d+)\.", version)
            if major and int(major.group(1)) == LLVM:
                return path
            found.append(f"{candidate} {major.group(1) if major else '?'}")
    if not found:
        sys.exit(f"{name} is not installed; ./dev deps installs it")
    print(f"not checked: {name} {LLVM} defines the result, here is only {', '.join(found)}")
    sys.exit(SKIPPED)
