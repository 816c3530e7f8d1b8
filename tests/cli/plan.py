#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plan.py BUILD: the pool that a job makes is what `hearth plan` says, within 5 %.

Jobs of twelve shapes are run, each with an engine and a folder for each node. After the recovery
the slots on each node are added up, and again after more saves than a node keeps: no engine has
made more. The plan's tmpfs must have room for all of the job's folder."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
SLOT = 2 * MIB
# nodes, ranks of a node, copies, keep, bytes, objects, bytes of common objects, lease_bytes
SHAPES = [(2, 1, 1, 1, 5 * MIB, 1, 0, 0), (2, 2, 1, 1, 9 * MIB, 1, 0, 0),
          (3, 1, 2, 1, 6 * MIB, 1, 0, 0), (3, 2, 1, 2, 3 * MIB, 1, 0, 0),
          (2, 4, 1, 1, 1 * MIB, 1, 0, 0), (4, 1, 3, 1, 4 * MIB, 1, 0, 0),
          (2, 1, 1, 3, 20 * MIB, 1, 0, 0), (1, 2, 1, 1, 8 * MIB, 1, 0, 0),
          (2, 2, 1, 1, 9 * MIB, 3, 0, 0), (5, 1, 1, 1, 6 * MIB, 1, 0, 0),
          (2, 1, 1, 1, 5 * MIB, 1, 3 * MIB, 0), (9, 1, 1, 1, 2 * MIB, 1, 0, 8 * MIB)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def plan(build, shape):
    nodes, ranks, copies, keep, size, objects, common, lease = shape
    command = [f"{build}/bin/hearth", "plan", "--json", "--ranks", str(nodes * ranks), "--nodes",
               str(nodes), "--copies", str(copies), "--keep", str(keep), "--bytes", str(size),
               "--objects", str(objects), "--common", str(common), "--extra", str(lease)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEARTH_")}
    return json.loads(subprocess.run(command, env=env, capture_output=True, check=True).stdout)


def start(build, work, shape, rank, port):
    nodes, ranks, copies, keep, size, objects, common, lease = shape
    node = rank // ranks
    root = f"{work}/n{node}"
    os.makedirs(root, 0o700, exist_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEARTH_")}
    env.update(HEARTH_ROOT=root, HEARTH_JOB="planned", HEARTH_NODE=f"n{node}",
               HEARTH_MACHINE=f"m{node}", HEARTH_ANY_ROOT="1", HEARTH_KEEP=str(keep),
               HEARTH_COPIES=str(copies), HEARTH_ENGINE=f"{build}/bin/hearthd",
               HEARTH_TRANSPORT="tcp", HEARTH_PORT=str(port), MASTER_ADDR="127.0.0.1",
               HEARTH_LEASE_BYTES=str(lease), RANK=str(rank), WORLD_SIZE=str(nodes * ranks))
    if nodes == 1:
        env["HEARTH_ALLOW_DEGRADED"] = "1"
    return subprocess.Popen([f"{build}/bin/planned_job", str(size), str(objects), str(keep + 2),
                             str(common)], env=env, text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)


def files(root):
    for folder, _, names in os.walk(root):
        for name in names:
            yield os.lstat(os.path.join(folder, name))


def pool(root):
    return sum(f.st_size for f in files(root) if f.st_size and f.st_size % SLOT == 0)


def taken(root):
    return sum(f.st_blocks * 512 for f in files(root))


def settled_pools(work, nodes):
    """Slots are made at once, and their files at the end of joining."""
    before, now = None, [pool(f"{work}/n{i}") for i in range(nodes)]
    while before != now:
        time.sleep(0.1)
        before, now = now, [pool(f"{work}/n{i}") for i in range(nodes)]
    return now


def compare(shape, said, made, when):
    off = [have for have in made if abs(have - said) > 0.05 * said]
    if off:
        print(f"{shape} {when}: {said} bytes of slots were planned, and made were {made}")
    return bool(off)


def hear(ranks, word):
    for rank in ranks:
        line = rank.stdout.readline().strip()
        if line != word:
            print(line)
            return False
    return True


def check(build, work, shape):
    said, port = plan(build, shape), free_port()
    ranks = [start(build, work, shape, rank, port) for rank in range(shape[0] * shape[1])]
    try:
        if not hear(ranks, "open"):
            return True
        bad = compare(shape, said["pool_bytes"], settled_pools(work, shape[0]), "when open")
        for rank in ranks:
            rank.stdin.write("\n")
            rank.stdin.flush()
        if not hear(ranks, "saved"):
            return True
        if shape[0] > 1:  # a single node makes slots for readers later, where there is room
            bad |= compare(shape, said["pool_bytes"], settled_pools(work, shape[0]), "after saves")
        most = max(taken(f"{work}/n{i}") for i in range(shape[0]))
        if shape[0] > 1 and most > said["mount_bytes"]:
            print(f"{shape}: {most} bytes are taken, and the plan's tmpfs has "
                  f"{said['mount_bytes']}")
            bad = True
        return bad
    finally:
        end(ranks, work)


def engines(work):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"hearthd") and any(w.startswith(work.encode()) for w in words):
            yield int(pid)


def end(ranks, work):
    for rank in ranks:
        rank.stdin.close()
        rank.wait(60)
    while pids := list(engines(work)):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main():
    build, bad = sys.argv[1], False
    for shape in SHAPES:
        work = tempfile.mkdtemp(prefix="hearth-plan-", dir="/dev/shm")
        try:
            bad |= check(build, work, shape)
        finally:
            shutil.rmtree(work)
    return bad


sys.exit(main())
