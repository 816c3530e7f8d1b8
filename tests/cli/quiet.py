#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quiet.py ROOT BUILD: in a job without a fault an operator reads of each save one line, and
`hearth log` changes the level.

Two ranks on two nodes, which are folders here, save 20 steps. From the first save on, the logs of
both engines have at info and above one line a save, `save`, and nothing else. Each line is one JSON
object with job and node. Then the level is changed to info: the log has no line at debug.
Both engines append to one file besides. While that cannot be opened, lines are counted, the check
log_lost is raised, and the first line after that has their number. An engine whose directory is
removed leaves the reason in the system log."""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from job import run_job

SAVES = 20
KEYS = ["time", "level", "event", "job", "node", "text"]
READY = {"not-tmpfs", "confined", "unconfined", "engine-ready", "placement", "joined", "peer-up",
         "chosen", "recovery"}


def lines(work, rank):
    with open(f"{work}/n{rank}/train7/.hearth/log", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def check_saves(work, rank):
    bad = 0
    told = [line for line in lines(work, rank) if line["level"] in ("error", "warn", "info")]
    for line in told:
        if list(line) != KEYS or (line["job"], line["node"]) != ("train7", f"n{rank}"):
            print(f"node n{rank}: {line}")
            bad = 1
    first = next((at for at, line in enumerate(told) if line["event"] == "save"), len(told))
    for line in told[:first]:
        if line["event"] not in READY:
            print(f"node n{rank}, before the first save: {line}")
            bad = 1
    for line in told[first:]:
        if line["event"] != "save" or not line["text"].startswith("protected step "):
            print(f"node n{rank}, beside the saves: {line}")
            bad = 1
    count = len(told[first:])
    if count != SAVES:
        print(f"node n{rank}: {count} lines of {SAVES} saves")
        bad = 1
    return bad


def hearth(work, *args):
    done = subprocess.run([f"{work}/bin/hearth", *args], text=True, capture_output=True)
    return done.returncode, done.stdout + done.stderr


def check_level(work):
    bad = 0
    root = ["--root", f"{work}/n0"]
    status, text = hearth(work, "log", *root, "--json", "train7", "info")
    told = json.loads(text) if not status else {}
    if (told.get("was"), told.get("level"), told.get("lost")) != ("debug", "info", 0):
        print(f"hearth log train7 info: status {status}: {text}")
        bad = 1
    seen = len(lines(work, 0))
    hearth(work, "keep", *root, "train7", "pin", "3000")  # a line at debug, or none
    status, text = hearth(work, "log", *root, "train7", "warn")
    if status or "level   warn, before: info" not in text:
        print(f"hearth log train7 warn: status {status}: {text}")
        bad = 1
    late = lines(work, 0)[seen:]
    if [(line["event"], line["text"]) for line in late] != [
            ("log-level", "lines up to warn are kept from here on, not info")]:
        print(f"after the level was info: {late}")
        bad = 1
    if hearth(work, "log", *root, "train7", "loud")[0] != 2:
        print("the level 'loud' is not refused")
        bad = 1
    return bad


def check_lost(work):
    """A directory lies in the place of one of the log's files, and is removed again."""
    bad, place, root = 0, f"{work}/all.log", ["--root", f"{work}/n0"]
    with open(place, encoding="utf-8") as f:
        nodes = {json.loads(line)["node"] for line in f}
    if nodes != {"n0", "n1"}:
        print(f"the file that both engines have appended to is of the nodes {nodes}")
        bad = 1
    os.rename(place, f"{work}/old.log")
    os.mkdir(place)
    hearth(work, "log", *root, "train7", "info")
    status, text = hearth(work, "log", *root, "train7")
    if status != 1 or "lost    1 lines, and each one at present: Is a directory" not in text:
        print(f"hearth log with a lost line: status {status}: {text}")
        bad = 1
    text = hearth(work, "status", *root, "--json", "train7")[1]
    if "log_lost" not in text or "could not be written: Is a directory" not in text:
        print(f"the check log_lost is not raised: {text}")
        bad = 1
    os.rmdir(place)
    hearth(work, "log", *root, "train7", "debug")
    with open(place, encoding="utf-8") as f:
        told = [json.loads(line) for line in f]
    if [line["event"] for line in told[:2]] != ["log-lost", "log-level"] or \
            "1 lines before this one are lost" not in told[0]["text"]:
        print(f"after there was room again: {told}")
        bad = 1
    return bad


def check_removed(work):
    """The job's directory is removed under its engine: the system log has the reason."""
    root, said = f"{work}/removed", []
    os.mkdir(root, 0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as system:
        system.bind(f"{work}/system")
        system.settimeout(20)
        engine = subprocess.Popen([f"{work}/bin/hearthd", "--root", root, "--any-root", "--job",
                                   "gone", "--node", "n9", "--transport", "tcp",
                                   f"--log=file,syslog:{work}/system"], stderr=subprocess.DEVNULL)
        while not os.path.exists(f"{root}/gone/.hearth/sock"):
            time.sleep(0.02)
        shutil.rmtree(f"{root}/gone")
        while not said or "engine-ends" not in said[-1]:
            said.append(system.recv(4096).decode())
        engine.wait(20)
    want = f"<27>hearthd[{engine.pid}]: job gone node n9: directory-removed the directory of job "
    if not any(one.startswith(want) for one in said):
        print(f"the system log has not why the engine ended: {said}")
        return 1
    return 0


def main(_, build):
    with tempfile.TemporaryDirectory() as work:
        os.symlink(f"{build}/bin", f"{work}/bin")
        bad = check_removed(work)
        with run_job(build, work, SAVES, HEARTH_LOG_FORMAT="json",
                     HEARTH_ENGINE_LOG=f"file,{work}/all.log"):
            return bad | check_saves(work, 0) | check_saves(work, 1) | check_level(work) | \
                check_lost(work)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
