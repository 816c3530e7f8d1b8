#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy.py ROOT BUILD: clang-tidy, as .clang-tidy says, over everything but the tests.

A file that clang-tidy found clean is not judged again while all is the same that decides: its
text, the text of each header that it includes, its commands in BUILD, the configuration,
clang-tidy itself and this script. The paths of ROOT and BUILD are no part of that, so clones share
what they found. It is kept as empty files in ${XDG_CACHE_HOME:-~/.cache}/hearth-tidy; without that
folder every file is judged.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

root, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
os.chdir(root)
folders = "core transport replication loader engine daemon client meeting cli examples".split()
if not shutil.which("clang-tidy"):
    print("skip: no clang-tidy")
    sys.exit(77)
version = subprocess.run(["clang-tidy", "--version"], capture_output=True, text=True).stdout
if not re.search(r"version 14\.", version):
    print("skip: the checks are those of clang-tidy 14, and this is another")
    sys.exit(77)
clang = shutil.which("clang-14")
cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
kept = pathlib.Path(cache, "hearth-tidy")
kept.mkdir(parents=True, exist_ok=True)
for old in kept.iterdir():
    if old.stat().st_mtime < time.time() - 30 * 86400:
        old.unlink(missing_ok=True)

# The analyzer gives a function up after so many states: its default, 225,000, costs twice the time.
always = ["-Wno-unknown-warning-option", "-fno-sanitize=all",
          "-Xclang", "-analyzer-config", "-Xclang", "max-nodes=100000"]
commands = {}  # what this build has: a backend without its library is left out
for entry in json.loads((build / "compile_commands.json").read_text()):
    commands.setdefault(str(pathlib.Path(entry["directory"], entry["file"])), []).append(entry)


def more(file):
    """An example knows public headers alone; the definition of hth_fail() must be its own."""
    text = pathlib.Path(file).read_text()
    if file.startswith("examples/") or re.search(r"^int hth_(fail|while)\(", text, re.M):
        return always
    return always + ["-include", str(root / "tests/lint/analyzer.h")]


def placeless(text):
    return text.replace(str(build), "BUILD").replace(str(root), "ROOT")


texts = {}


def text_of(path):
    is_ = os.stat(path)
    at = (path, is_.st_mtime_ns, is_.st_size)
    if at not in texts:
        texts[at] = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    return texts[at]


configs = sorted(str(p) for f in folders for p in pathlib.Path(f).rglob(".clang-tidy"))
common = [version, text_of(shutil.which("clang-tidy")), text_of(__file__), text_of(".clang-tidy"),
          *configs, *map(text_of, configs)]


def key(file):
    """A hash of all that decides; None where that cannot be said."""
    parts = common + more(file)
    for entry in commands[str(root / file)]:
        flags = entry.get("arguments") or shlex.split(entry["command"])
        parts += flags
        out = flags.index("-o")
        flags = [*flags[1:out], *flags[out + 2:], *more(file), "-M", "-w"]
        run = subprocess.run([clang or "false", *flags], cwd=entry["directory"],
                             capture_output=True, text=True)
        if run.returncode != 0:
            return None
        for path in shlex.split(run.stdout.replace("\\\n", " ").split(": ", 1)[1]):
            path = os.path.join(entry["directory"], path)
            parts += [path, text_of(path)]
    return hashlib.sha256("\0".join(map(placeless, parts)).encode()).hexdigest()


def judge(file):
    """What clang-tidy says against a file, and whether it had to be asked."""
    before = key(file)
    if before and (kept / before).exists():
        (kept / before).touch()
        return "", False
    extra = [f"--extra-arg={a}" for a in more(file)]
    run = subprocess.run(["clang-tidy", "--quiet", "-p", str(build), *extra, file],
                         capture_output=True, text=True)
    if run.returncode != 0:
        said = run.stdout + run.stderr
        return said or f"error: {file}: clang-tidy ends with {run.returncode}", True
    if before and key(file) == before:
        (kept / before).touch()
    return "", True


files = [str(f) for top in folders for f in sorted(pathlib.Path(top).rglob("*.c"))
         if str(root / f) in commands]
with concurrent.futures.ThreadPoolExecutor(2) as two:
    said = list(two.map(judge, files))
print(f"{sum(asked for _, asked in said)} of {len(files)} files judged")
against = {line for text, _ in said for line in text.splitlines() if "error: " in line}
if not files or any(text for text, _ in said):
    print(*sorted(against), f"the paths that lead there: clang-tidy -p {build} FILE", sep="\n")
    sys.exit(1)
