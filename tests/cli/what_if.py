#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""what_if.py BUILD: `hearth what-if` of a node whose coordinator answers, and stands still.

Asked on the other node: all is known as long as the coordinator sends, and nothing is promised when
it has been stopped for longer than a change takes. The command then tries to ask it, and ends."""
import json
import os
import signal
import subprocess
import sys
import tempfile

from job import engine_pid, run_job


def ask(job, *words):
    done = subprocess.run([f"{job.bin}/hearth", "what-if", "--json", "--root", f"{job.work}/n1",
                           "train7", *words], text=True, capture_output=True, timeout=30)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def fates(said):
    return {save["fate"] for save in said["saves"]}


def expect(what, have, want):
    if have != want:
        print(f"{what}: {have}, not {want}")
    return have != want


def check(job):
    status, said = ask(job, "n0")
    bad = expect("status, all well", status, 0) | expect("fates", fates(said), {"survives"})
    bad |= expect("nodes lost", said["losing"], ["n0"])
    status, said = ask(job, "n0", "n1")
    bad |= expect("status, both lost", status, 1) | expect("fates", fates(said), {"lost"})
    pid = engine_pid(job, 0)
    os.kill(pid, signal.SIGSTOP)
    try:
        job.wait_until(lambda: not ask(job)[1]["current"], 60)
        status, said = ask(job)
        bad |= expect("status, coordinator stopped", status, 1)
        bad |= expect("fates", fates(said), {"unknown"})
    finally:
        os.kill(pid, signal.SIGCONT)
    job.wait_until(lambda: ask(job)[0] == 0, 60)
    return bad


def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="hearth-what-if-") as work:
        with run_job(sys.argv[1], work, HEARTH_DEAD_MS="1000", HEARTH_HEARTBEAT_MS="100") as job:
            return check(job)


sys.exit(main())
