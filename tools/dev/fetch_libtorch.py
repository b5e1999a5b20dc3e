#!/usr/bin/env python3
"""Downloads the pinned wheels and unpacks libtorch's native part into one folder, all or nothing.

    fetch_libtorch.py DEST --pip PIP [--pins FILE]

pip says where each wheel lies; the bytes are fetched here, because pip starts anew after an interruption and a 530 MB file
should not. What has come so far stays in DEST.downloads; DEST appears by a rename once everything is checked and unpacked.
The caller holds a lock. Exit codes are those of dtorch: 65 damaged, 69 no network, 73/74 cannot write, 130 interrupted.
"""

import argparse
import errno
import fnmatch
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile

# What a build against the CPU part of libtorch needs of the wheels; libtorch_cuda.so alone would be 456 MB more.
NEEDED = (
    "torch/include/*",
    "torch/version.py",
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libc10.so",
    "torch/lib/libgomp*",
    "torch-*.dist-info/licenses/*",
    "nvidia/cu13/lib/libcudart.so.*",
    "nvidia/cu13/lib/libcupti.so.*",
    "nvidia_*.dist-info/licenses/*",
)
DOWNLOAD_MIB = 560  # the wheels, about
UNPACKED_MIB = 560  # what NEEDED takes, about
CHUNK = 1 << 20
SMALL = 32 << 20  # no progress is shown for less
TIMEOUT_S = 60
PIP_TIMEOUT_S = 900
ATTEMPTS_WITHOUT_PROGRESS = 4


class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def say(text):
    print(f"dev: {text}", file=sys.stderr, flush=True)


def read_pins(path):
    """[(requirement, sha256)] of a requirements file with one hash a line."""
    pins = []
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            requirement, digest = re.fullmatch(r"(\S+) --hash=sha256:([0-9a-f]{64})", line).groups()
            pins.append((requirement, digest))
    return pins


def locate(pip, pins, scratch):
    """{sha256: URL}, asked of pip, so that mirrors, proxies and certificates of its configuration hold."""
    report = scratch / "report.json"
    command = [pip, "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", str(report)]
    command += ["--python-version", "3.11", "--only-binary=:all:", "--target", str(scratch / "nowhere")]
    try:
        found = subprocess.run(command + [requirement for requirement, _ in pins], capture_output=True, text=True,
                               stdin=subprocess.DEVNULL, timeout=PIP_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise Failure(69, f"pip said nothing about libtorch's packages for {PIP_TIMEOUT_S} s; is the package index slow?") from error
    if found.returncode != 0:
        reason = found.stderr.strip().splitlines()[-3:]
        raise Failure(69, "pip could not find libtorch's packages; is there a network?\n  " + "\n  ".join(reason))
    urls = {}
    for item in json.loads(report.read_text())["install"]:
        info = item["download_info"]
        urls[info["archive_info"]["hashes"]["sha256"]] = info["url"]
    for requirement, digest in pins:
        if digest not in urls:
            raise Failure(65, f"the package index offers another {requirement} than the pinned one (sha256 {digest})")
    return urls


def certificates(pip):
    """The TLS settings of pip: its own `cert` option if there is one, else the system's."""
    config = subprocess.run([pip, "config", "list"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    match = re.search(r"^[^.]+\.cert='(.+)'$", config.stdout, re.MULTILINE)
    return ssl.create_default_context(cafile=match.group(1) if match else None)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


class Progress:
    """One redrawn line on a terminal, else a line every tenth of the way; nothing for small files."""

    def __init__(self, name, total):
        self.name, self.total, self.shown = name, total, None

    def update(self, done):
        if self.total < SMALL:
            return
        tty = sys.stderr.isatty()
        now = time.monotonic() if tty else done * 10 // max(self.total, 1)
        if self.shown is None or (now - self.shown > 0.2 if tty else now > self.shown):
            self.shown = now
            text = f"dev: {self.name}: {done >> 20} of {self.total >> 20} MiB"
            print(f"\r{text}" if tty else text, end="" if tty else "\n", file=sys.stderr, flush=True)

    def close(self):
        if sys.stderr.isatty() and self.shown is not None:
            print(file=sys.stderr)


def append_from(url, part, context, name):
    """Appends to `part` what it lacks of `url`. Raises OSError when the connection ends early."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        reply = urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return  # nothing is missing; the checksum decides
        raise
    with reply:
        resumed = reply.status == 206
        start = have if resumed else 0
        total = start + int(reply.headers.get("Content-Length", 0))
        progress = Progress(name, total)
        with open(part, "ab" if resumed else "wb") as file:
            done = start
            while block := reply.read(CHUNK):
                file.write(block)
                done += len(block)
                progress.update(done)
        progress.close()
        if done < total:
            raise ConnectionError(f"the connection ended at {done} of {total} bytes")


def fetch(url, digest, part, context):
    """Brings `part` to the whole file of that digest, over as many attempts as make progress."""
    name = urllib.request.url2pathname(url.rsplit("/", 1)[-1].split("#")[0])
    if url.startswith("file:"):
        shutil.copyfile(urllib.request.url2pathname(url[len("file://"):]), part)
    if part.exists() and part.stat().st_size:
        say(f"{name}: going on from {part.stat().st_size >> 20} MiB")
    failures = 0
    while not url.startswith("file:"):
        before = part.stat().st_size if part.exists() else 0
        try:
            append_from(url, part, context, name)
            break
        except urllib.error.HTTPError as error:
            raise Failure(69, f"the server of {name} answered {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:  # the latter: a reply that is no HTTP, or ends within a chunk
            if getattr(error, "errno", None) == errno.ENOSPC:
                raise
            after = part.stat().st_size if part.exists() else 0
            failures = 0 if after > before else failures + 1
            if failures == ATTEMPTS_WITHOUT_PROGRESS:
                raise Failure(69, f"the download of {name} stopped at {after >> 20} MiB: {error}\n"
                                  "  The same command goes on from there.") from error
            time.sleep(2**failures)
    if sha256(part) != digest:
        part.unlink()
        raise Failure(65, f"{name} is damaged (its sha256 is not {digest}); it was removed, the same command fetches it again")


def check_space(folder, needed):
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Failure(73, f"not enough disk space in {folder}: libtorch needs {needed >> 20} MiB, {free >> 20} MiB are free.\n"
                          "  Free some, or set XDG_CACHE_HOME to a folder on a larger disk; then run the same command.")


def unpack(wheel, folder):
    root = folder.resolve()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if any(fnmatch.fnmatchcase(member.filename, pattern) for pattern in NEEDED) and not member.is_dir():
                if not (root / member.filename).resolve().is_relative_to(root):
                    raise Failure(65, f"{wheel.name}: {member.filename} leads out of its folder")
                archive.extract(member, root)


def install(dest, pip, pins_file, download_bytes, unpacked_bytes):
    downloads = dest.with_name(dest.name + ".downloads")
    partial = dest.with_name(dest.name + ".partial")
    downloads.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    have = sum(file.stat().st_size for file in downloads.iterdir())
    check_space(downloads, max(0, download_bytes - have) + unpacked_bytes)

    pins = read_pins(pins_file)
    urls = locate(pip, pins, downloads)
    context = certificates(pip)
    for requirement, digest in pins:
        whole = downloads / f"{digest}.whl"
        if not whole.exists():
            part = downloads / f"{digest}.part"
            fetch(urls[digest], digest, part, context)
            part.rename(whole)

    check_space(downloads, unpacked_bytes)
    say("unpacking libtorch")
    partial.mkdir()
    for _, digest in pins:
        unpack(downloads / f"{digest}.whl", partial)
    os.sync()
    partial.rename(dest)
    shutil.rmtree(downloads, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=pathlib.Path)
    parser.add_argument("--pip", required=True)
    parser.add_argument("--pins", type=pathlib.Path, default=pathlib.Path(__file__).with_name("libtorch.txt"))
    parser.add_argument("--space", type=int, nargs=2, default=(DOWNLOAD_MIB, UNPACKED_MIB), metavar="MIB", help="of the wheels, and unpacked")
    arguments = parser.parse_args()
    try:
        install(arguments.dest, arguments.pip, arguments.pins, *(mib << 20 for mib in arguments.space))
    except Failure as failure:
        print(f"dev: error: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        print("\ndev: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except OSError as error:
        full = "  Free some space, or set XDG_CACHE_HOME to a folder on a larger disk; then run the same command."
        print(f"dev: error: {error}" + (f"\n{full}" if error.errno == errno.ENOSPC else ""), file=sys.stderr)
        return 73 if error.errno == errno.ENOSPC else 74
    return 0


if __name__ == "__main__":
    sys.exit(main())
