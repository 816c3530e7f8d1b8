#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""save_cost.py BUILD...: what a save costs an engine and a rank of each build, counted.

Two ranks on two nodes, which are folders here, save small steps (manual_job.c), once few and once
many; the difference, divided, is the cost of one save. Instructions are counted by valgrind's
callgrind, system calls by strace, and memory is the engine's own (RssAnon) after the many saves.
All is of node 0, the coordinator. A build of another tree has to make its cli_manual from this
tree's tests/cli/manual_job.c."""
import os
import re
import sys
import tempfile
import time

from job import Job, engine_pid

FEW, MANY = 20, 220
CALLGRIND = "valgrind -q --log-file=/dev/null --tool=callgrind --callgrind-out-file="
STRACE = "strace -DDD -f -c -U calls,name -o "
# strace follows the rank into the engine that it starts
COUNTS = [("instructions, engine", CALLGRIND, "hearthd"),
          ("instructions, rank", CALLGRIND, "cli_manual"),
          ("system calls, engine", STRACE, "hearthd"),
          ("system calls, engine and rank", STRACE, "cli_manual")]


def programs(build, work, counter, counted):
    """A folder with the programs of the build, of which one runs below the counter."""
    os.mkdir(f"{work}/bin")
    for name in "hearth", "hearthd", "cli_manual":
        under = f"{counter}{work}/$HEARTH_NODE.count" if name == counted else ""
        with open(f"{work}/bin/{name}", "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\nexec {under} {build}/bin/{name} "$@"'
                    f'{" 4" if name == "cli_manual" else ""}\n')
        os.chmod(f"{work}/bin/{name}", 0o700)


def count(path):
    """Of all threads; the counter writes it when the process has ended."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                found = re.search(r"^(?:totals: (\d+)| *(\d+) total)$", f.read(), re.M)
            if found:
                return int(found[1] or found[2])
        time.sleep(0.1)
    raise SystemExit("there is no count")


def own_memory(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"RssAnon:\s+(\d+)", f.read()).group(1))


def run(build, saves, counter="", counted=""):
    """The count, or without a counter the KiB of the engine."""
    with tempfile.TemporaryDirectory() as work:
        programs(build, work, counter, counted)
        job = Job(work, work, saves, HEARTH_RECOVER_MS="60000")
        try:
            for rank in job.ranks:
                if (said := rank.stdout.readline().strip()) != "saved":
                    raise SystemExit(said)
            if not counter:
                return own_memory(engine_pid(job, 0))
        finally:
            job.end()
        return [count(f"{work}/n{node}.count") for node in range(2)][0]


def main(*builds):
    for build in builds:
        print(f"{build}: KiB of the engine after {MANY} saves: {run(build, MANY)}", flush=True)
    for what, *how in COUNTS:
        for build in builds:
            each = (run(build, MANY, *how) - run(build, FEW, *how)) / (MANY - FEW)
            print(f"{build}: {what}, a save: {each:.1f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
