#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""night.py BUILD: what an operator is answered on each of two nodes while an engine stands still,
is back, and is killed.

The job is job.py's. Each answer is asked for again until it is the right one, for 40 s at
most: an engine notices after dead_ms (here 1 s) and some heartbeats."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from job import engine_pid, run_job


def hearth(job, node, command):
    """(exit status, JSON or None)"""
    out = subprocess.run([f"{job.bin}/hearth", command, "--root", f"{job.work}/n{node}", "--json",
                          "train7"], text=True, capture_output=True, timeout=30)
    return out.returncode, json.loads(out.stdout) if out.stdout else None


def checks(job, node):
    status, answer = hearth(job, node, "status")
    return status, {check["name"] for check in answer["checks"]}, answer


def states(job, node):
    status, answer = hearth(job, node, "nodes")
    return status, {row["node"]: row["state"] for row in answer["nodes"]}


def until(what, ask, right):
    """Asks until the answer is right."""
    end = time.monotonic() + 40
    while not right(*(answer := ask())):
        if time.monotonic() > end:
            sys.exit(f"{what}: {answer}")
        time.sleep(0.1)


def is_well(status, raised, answer):
    """But for its age: this job saves no more."""
    return raised <= {"protection_old"} and not answer["away"] and status == len(raised)


def night(job, pids):
    for node in range(2):
        until(f"n{node}, a job that is well", lambda: checks(job, node), is_well)
        until(f"n{node}, nodes", lambda: states(job, node),
              lambda status, rows: status == 0 and rows == {"n0": "ok", "n1": "ok"})
    os.kill(pids[1], signal.SIGSTOP)
    until("n0, n1 stands still", lambda: checks(job, 0),
          lambda status, raised, answer: status == 1 and {"node_lost", "copies_below"} <= raised
          and answer["away"][0]["node"] == "n1" and answer["away"][0]["state"] == "lost"
          and answer["status"]["newest_protected"]["state"] == "degraded")
    until("n0, nodes", lambda: states(job, 0),
          lambda status, rows: status == 1 and rows == {"n0": "ok", "n1": "lost"})
    status, raised, _ = checks(job, 1)
    if (status, raised) != (2, {"engine_gone"}):
        sys.exit(f"n1, whose engine stands still: {status}, {raised}")
    os.kill(pids[1], signal.SIGCONT)
    for node in range(2):
        until(f"n{node}, n1 is back", lambda: checks(job, node), is_well)
    os.kill(pids[0], signal.SIGSTOP)
    until("n1, the coordinator stands still", lambda: checks(job, 1),
          lambda status, raised, answer: status == 2 and "coordinator_silent" in raised
          and not {"node_lost", "copies_below"} & raised)
    _, rows = hearth(job, 1, "saves")
    if {row["state"] for row in rows["saves"]} != {"kept"}:
        sys.exit(f"n1, saves while the coordinator stands still: {rows}")
    os.kill(pids[0], signal.SIGKILL)
    until("n0, its engine was killed", lambda: checks(job, 0),
          lambda status, raised, answer: status == 2 and raised == {"engine_gone"}
          and "did not end in order" in answer["checks"][0]["text"])


def main(build):
    with tempfile.TemporaryDirectory() as work:
        with run_job(build, work, HEARTH_HEARTBEAT_MS="200", HEARTH_DEAD_MS="1000") as job:
            pids = [engine_pid(job, rank) for rank in range(2)]
            try:
                night(job, pids)
            finally:
                for pid in pids:
                    try:
                        os.kill(pid, signal.SIGCONT)
                    except ProcessLookupError:
                        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
