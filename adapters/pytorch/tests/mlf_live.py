# SPDX-License-Identifier: Apache-2.0
"""Hearth and the real ml-flashpoint by turns in one job: no value differs, and each finds the
newest whole step, whichever of the two saved it.

    PYTHONPATH=<ml-flashpoint's src, built> python mlf_live.py --orders 20 --seed 1

`pip wheel . --no-build-isolation` in ml-flashpoint's source archive leaves its extensions in its
src. Its CMake wants abseil: FETCHCONTENT_SOURCE_DIR_ABSEIL-CPP names sources that are here.

An order is a row of lives of a job of two ranks on two nodes. In each life one of the two programs
loads the newest step, compares every value, and saves one to three steps. Between lives one thing
happens, drawn: nothing, a node is lost with all that it had, an engine is killed, or all processes
end at once. It needs root, for mount and network namespaces of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import mlf_live_work as live
from ranks import World

LIVES = 5
NODES = 2
EVENTS = ("nothing", "node lost", "engine killed", "all killed")
WHO = {"hearth": (live.hearth_load, live.hearth_save),
       "ml-flashpoint": (live.mlf_load, live.mlf_save)}
_NEWNET = 0x40000000
SETTINGS = {"LOCAL_RANK": "0", "NNODES": str(NODES), "HEARTH_LINGER_S": "20",
            "HEARTH_ALLOW_DEGRADED": "0", "HEARTH_DEAD_MS": "2000"}


def own_network() -> None:
    """ml-flashpoint listens on all addresses, where it gives each caller any file that it can read;
    and it wants an interface that is not the loopback."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEWNET):
        raise OSError(ctypes.get_errno(), "a network namespace is refused")
    for command in ("link set lo up", "link add eth0 type veth peer name eth1",
                    "address add 192.0.2.1/24 dev eth0", "link set eth0 up"):
        subprocess.run(["ip", *command.split()], check=True)


def _kill_engine(folder: str, node: int) -> None:
    try:
        with open(f"{folder}/node{node}/job/.hearth/lock", encoding="ascii") as lock:
            pid = int(lock.read().split()[0])
        with open(f"/proc/{pid}/cmdline", "rb") as command:
            if b"hearthd" in command.read():
                os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError, IndexError):
        return
    until = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.02)


def _happen(event: str, folder: str, dice: random.Random) -> None:
    node = dice.randrange(NODES)
    if event != "nothing":
        for each in range(NODES) if event == "all killed" else [node]:
            _kill_engine(folder, each)
    if event == "node lost":
        shutil.rmtree(f"{folder}/node{node}")


def order(folder: str, dice: random.Random, seen: dict[str, Any]) -> str | None:
    """One order of lives. Returns the sentence of the first error, or None."""
    newest, step, event = None, 0, "nothing"
    base = f"{folder}/here/job"
    whos = [dice.choice(list(WHO)) for _ in range(LIVES)]
    for at, who in enumerate(whos):
        load, save = WHO[who]
        ranks = World(NODES, NODES, folder, HEARTH_ROOT=f"{folder}/here", **SETTINGS)
        try:
            ranks.run(live.enter, folder)
            for found in ranks.run(load, base):
                if (found and found[0]) != newest:
                    return f"life {at}, {who} after {event}: found {found}, not step {newest}"
                if found:
                    seen["compared"] += found[1]
                    seen["differ"] += found[2]
            for _ in range(dice.randrange(1, 4)):
                step += dice.randrange(1, 4)
                ranks.run(save, base, step)
                newest = step
                seen["saves"][who] += 1
            event = dice.choice(EVENTS)
            if who == "hearth" and event != "all killed" and dice.random() < 0.5:
                ranks.run(live.hearth_leave, base)
        finally:
            ranks.kill()
        _happen(event, folder, dice)
        seen["events"][event] += 1
        seen["turns"] += at > 0 and whos[at - 1] != who
    return None


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--orders", type=int, default=20)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    own_network()
    seen: dict[str, Any] = {"compared": 0, "differ": 0, "turns": 0,
                            "saves": dict.fromkeys(WHO, 0), "events": dict.fromkeys(EVENTS, 0)}
    failed = 0
    for seed in range(given.seed, given.seed + given.orders):
        folder = tempfile.mkdtemp(prefix="hearth-mlf-", dir="/dev/shm")
        try:
            why = order(folder, random.Random(seed), seen)
        except Exception as error:
            why = f"{error}"
        finally:
            for node in range(NODES):
                _kill_engine(folder, node)
            shutil.rmtree(folder, ignore_errors=True)
        failed += why is not None
        print(f"seed {seed}: {why or 'as it should'}", flush=True)
    print(f"{given.orders} orders of {LIVES} lives, {failed} failed: {seen['differ']} of "
          f"{seen['compared']} values differ; saves {seen['saves']}, {seen['turns']} times the "
          f"other went on; {seen['events']}")
    return int(failed > 0 or seen["differ"] > 0)


if __name__ == "__main__":
    sys.exit(main())
