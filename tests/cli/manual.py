#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manual.py ROOT BUILD: the commands print what the examples of their manual pages show.

Two ranks on two nodes, which are folders here, save three steps. Then each example of section 1
is typed, page by page, in a shell. Its output is compared with the page's, aside from pids,
epochs, ages, key ids, the memory that the job takes and the file system has, and the width of
columns. Not typed: examples of doctor, which differ from machine to machine, those that need a jq
that is not there, and those without '$'."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from job import engine_pid, run_job

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lint"))
from manual import Page, code  # noqa: E402

STEP = "train7/step-5000_ckpt"
# (page, its block of code, what is done before)
ORDER = [("inspect", 0, None), ("verify", 0, None), ("verify", 1, None), ("header", 0, None),
         ("key", 0, "keys"), ("key", 1, None), ("cat", 0, None), ("ls", 0, None), ("ls", 2, None),
         ("what-if", 0, None), ("what-if", 1, None), ("what-if", 2, None),
         ("status", 0, "old"), ("nodes", 0, None), ("saves", 0, None),
         ("plan", 0, None), ("plan", 1, None),
         ("keep", 0, None), ("keep", 1, None), ("why", 1, None), ("metrics", 0, None),
         ("log", 0, None),
         ("rm", 0, "unmark"), ("ls", 1, None),
         ("cat", 1, "damage"), ("clean", 1, "notes")]
# Key ids, epochs, pids, ages, and the memory that the job takes.
UNLIKE = [(r"\b\d+\.\d+ (s|min)\b", r"0 \1"), (r"^[0-9a-f]{8}(?=  )", "ID"),
          (r"\b\d{13}\b", "EPOCH"), (r"\bpid \d+", "pid PID"), (r"^(train7 +)\d+", r"\1PID"),
          (r"\b\d+ (s|min)(?=  |$)", "AGE"), (r"[\d.]+ [KMG]iB/s", "RATE"),
          (r"[\d.]+ MiB(?= of memory|$)", "SIZE"), (r"^mount .*", "MOUNT"),
          (r"\d+ not taken", "N not taken"),
          (r"^(newest|room) .*", r"\1"), (r"is \d+ \w+ old: .* every .*", "is OLD"),
          (r"\d+ s ago", "AGO"), (r"\d+ ms\b", "MS"), (r"(5000 +)[\d.]+ (s|min)\b", r"\1AGE"),
          (r"(ok +)\d+ s\b", r"\1AGE"), (r"[\d.]+ [MGT]iB  tcp", "SIZE tcp")]
MARK = "--- typed ---"


def prepare(work, what):
    if what == "damage":
        with open(f"{work}/n0/{STEP}/__0__0_src0.distcp", "r+b") as f:
            f.seek(100000)
            f.write(b"X")
    elif what == "unmark":
        for word, step in ("unpin", "4000"), ("good", "5000"):
            subprocess.run([f"{work}/bin/hearth", "keep", "--root", f"{work}/n0", "train7", word,
                            step], check=True)
    elif what == "old":  # the job saves no more, and its engine notices
        for _ in range(600):
            out = subprocess.run([f"{work}/bin/hearth", "status", "--root", f"{work}/n0", "train7"],
                                 text=True, capture_output=True).stdout
            if "protection_old" in out:
                break
            time.sleep(0.1)
    elif what == "notes":
        open(f"{work}/n0/train7/notes.txt", "w").close()
    elif what == "keys":
        subprocess.run([f"{work}/bin/hearth", "key", "new", f"{work}/job.key"], check=True,
                       capture_output=True)


def examples(block):
    """[(command, what it prints)]"""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def can_run(command):
    return "jq" not in command or shutil.which("jq")


def typed(commands, job, folder):
    """What each of them prints, in one shell"""
    work, pid = job.work, engine_pid(job, 0)
    ended = "while hearth ls train7 | grep -q '^engine  pid'; do sleep 0.05; done"
    script = ""
    for command in commands:
        command = command.replace("/mnt/hearth", f"{work}/n0")
        if command.startswith("kill "):
            command = f"kill {pid}; {ended}"
        script += f"echo '{MARK}'\n{command}\n"
    env = dict(os.environ, HEARTH_ROOT=f"{work}/n0", PATH=f"{work}/bin:{os.environ['PATH']}")
    out = subprocess.run(["sh"], input=script, env=env, cwd=folder, text=True, timeout=60,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    return [part.lstrip("\n") for part in out.split(MARK)[1:]]


def shape(text, work):
    """Without what differs from run to run"""
    text = text.replace(f"{work}/n0", "/mnt/hearth")
    for pattern, instead in UNLIKE:
        text = re.sub(pattern, instead, text, flags=re.M)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "\n".join(lines).strip()


def check(root, job):
    work, bad = job.work, 0
    for name, number, before in ORDER:
        page = Page(os.path.join(root, f"docs/man/hearth-{name}.1"))
        prepare(work, before)
        shown = [one for one in examples(code(page.sections["EXAMPLES"])[number])
                 if can_run(one[0])]
        folder = f"{work}/n0/{STEP}" if name == "cat" else work
        for (command, want), have in zip(shown, typed([one[0] for one in shown], job, folder)):
            want = shape("\n".join(want), work)
            if shape(have, work) != want:
                print(f"{page.name}: $ {command}\n--- the page:\n{want}\n--- printed:\n"
                      f"{shape(have, work)}\n")
                bad = 1
    return bad


def main(root, build):
    with tempfile.TemporaryDirectory() as work:
        os.symlink(f"{build}/bin", f"{work}/bin")
        with run_job(build, work) as job:
            return check(root, job)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
