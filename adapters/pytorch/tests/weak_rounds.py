# SPDX-License-Identifier: Apache-2.0
"""Weak mode as a property: a training loop with on_error="warn" goes on whatever happens to its
engines and their memory, and saving works again when the faults are over.

    python weak_rounds.py --rounds 300 --seed 1

Two ranks on two nodes, each with a tmpfs of its own, train and save. A round draws two faults, the
nodes that they hit, and when, and how they overlap:

    kill      an engine is killed
    gone      an engine is killed as soon as there is one, for a while
    stop      an engine stands still for a while, longer than dead_ms in some rounds
    full      another program takes all that is free of a node's tmpfs, for a while
    removed   a node's job directory is removed under the job

These rules hold in every round: no call of the loop raises; no call of it takes longer than twice
blocked_ms, which either rank may wait, and the copy, with what the machine is late by beside; a
save that begins after the faults' end is PROTECTED within SAVED_S, on both nodes (FALLEN_S after
`gone`); the newest PROTECTED save loads with the values of its step. After a directory was removed
the ranks are started again, as the error demands, and find a save that is no older than the newest
that was PROTECTED before the round.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BLOCKED_MS = 500
SLOWER_S = 1.0  # than twice that: the copy, and a machine that does other work
SAVED_S = 60.0
FALLEN_S = 60.0 + SAVED_S  # after an engine was killed again and again: it is started later then
STEP_S = 0.05
GOES_ON_S = 2.0  # where no save can be PROTECTED before the job is started again
DEAD_MS = 1500
NODES = 2
MIB = 1 << 20
FLOATS = MIB  # of a rank's state: 4 MiB
TMPFS = 96 * MIB
KINDS = ("kill", "gone", "stop", "full", "removed")
SAVES = ("save", "async_save", "hearth_checkpoint.torch.async_save")


@dataclass
class Fault:
    kind: str
    node: int
    at_s: float
    lasts_s: float


@dataclass
class Seen:
    """What a rank saw in a round."""

    step: int  # the next one
    longest_s: float
    noise_s: float  # the most by which a sleep was too long: what the machine does beside
    saved_s: float | None  # from the faults' end until a save that began then was PROTECTED
    protected: int | None  # its step
    failures: int
    error: str | None


# ---- in a rank -----------------------------------------------------------------------------------


def _state(rank: int, step: int) -> dict[str, Any]:
    import torch

    return {f"w{rank}": torch.full((FLOATS,), float(step)), "step": step}


def found(base: str) -> int | None:
    """The step that all ranks go on from; it is loaded and compared."""
    import hearth_checkpoint.torch as ht

    path = ht.latest(base)
    return None if path is None else _compared(path)


def _compared(path: str) -> int:
    import torch.distributed as dist

    import hearth_checkpoint.torch.dcp as dcp

    rank = dist.get_rank()
    state = _state(rank, -1)
    dcp.load(state, checkpoint_id=path)
    step, values = state["step"], state[f"w{rank}"]
    assert step >= 0 and bool((values == float(step)).all()), (path, step, values)
    return step


def train(base: str, folder: str, how: str, step: int, within_s: float) -> Seen:
    """Save at each step until the faults are over (there is a file `over`), and from then on until
    a save is PROTECTED, at most so long; 0: for GOES_ON_S."""
    import torch
    import torch.distributed as dist

    import hearth_checkpoint.torch as ht
    import hearth_checkpoint.torch.dcp as dcp

    save = {"save": dcp.save, "async_save": dcp.async_save,
            "hearth_checkpoint.torch.async_save": ht.async_save}[how]
    rank, longest, noise, over, first, protected = dist.get_rank(), 0.0, 0.0, 0.0, 0, -1
    saved: float | None = None
    futures: list[Any] = []
    while True:
        # a training step: all ranks, and what they agree on
        now = torch.tensor([float(rank == 0 and os.path.exists(f"{folder}/over")), 0.0])
        if over:
            held = ht.protection(base).step
            now[1] = -1.0 if held is None else float(held)
        else:
            now[1] = -1.0
        # torch's async_save() has a thread for each save, and two of them mix their collectives
        ready = how != "async_save" or not futures
        least = torch.tensor([now[1], float(ready)])
        dist.all_reduce(now)
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
        if now[0] and not over:
            over, first = time.monotonic(), step
        elif over:
            if least[0] >= first:
                saved, protected = time.monotonic() - over, int(least[0])
            late = torch.tensor([float(time.monotonic() - over > (within_s or GOES_ON_S))])
            dist.all_reduce(late)
            if saved is not None or late[0]:
                break
        begun = time.monotonic()
        time.sleep(STEP_S)
        noise = max(noise, time.monotonic() - begun - STEP_S)
        futures = [f for f in futures if not f.done()]
        if not least[1]:
            continue
        begun = time.monotonic()
        future = save(_state(rank, step), checkpoint_id=f"{base}/{step}", on_error="warn",
                      blocked_ms=BLOCKED_MS)
        longest = max(longest, time.monotonic() - begun)
        futures += [future] if hasattr(future, "done") else []
        step += 1
    for one in futures if within_s else ():  # they are written one after another
        one.result(max(SAVED_S, len(futures)))
    if saved is not None:
        held = ht.protection(base).step
        assert held is not None
        dist.barrier()
        protected = _compared(f"{base}/{protected}" if held == protected else ht.latest(base))
    said = ht.protection(base)
    return Seen(step, longest, noise, saved, protected if saved is not None else None,
                said.failures, said.error)


# ---- faults --------------------------------------------------------------------------------------


def _engine(base: str) -> int:
    """Its pid; 0: there is none."""
    try:
        with open(f"{base}/.hearth/lock") as file:
            pid = int(file.read().split()[0])
        with open(f"/proc/{pid}/comm") as file:
            return pid if file.read().strip() == "hearthd" else 0
    except (OSError, ValueError, IndexError):
        return 0


def _signal(base: str, what: int) -> int:
    pid = _engine(base)
    try:
        if pid:
            os.kill(pid, what)
    except ProcessLookupError:
        return 0
    return pid


def _fill(path: str, until: float) -> None:
    """Take what is free, also what becomes free, until then."""
    with open(path, "wb", buffering=0) as file:
        os.unlink(path)
        while time.monotonic() < until:
            try:
                file.write(bytes(MIB))
            except OSError:
                time.sleep(0.01)


def _happen(fault: Fault, root: str, began: float) -> None:
    base = f"{root}/job"
    time.sleep(max(0.0, began + fault.at_s - time.monotonic()))
    until = time.monotonic() + fault.lasts_s
    if fault.kind == "kill":
        _signal(base, signal.SIGKILL)
    elif fault.kind == "gone":
        while time.monotonic() < until:
            _signal(base, signal.SIGKILL)
            time.sleep(0.05)
    elif fault.kind == "stop":
        pid = _signal(base, signal.SIGSTOP)
        time.sleep(fault.lasts_s)
        if pid:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
    elif fault.kind == "full":
        _fill(f"{root}/filler", until)
    else:
        shutil.rmtree(base, ignore_errors=True)


# ---- rounds --------------------------------------------------------------------------------------


class Rounds:
    """One job, from round to round."""

    def __init__(self, seed: int, folder: str, kinds: list[str],
                 say: Callable[[str], None]) -> None:
        self.kinds_drawn = kinds
        self.random, self.folder, self.say = random.Random(seed), folder, say
        self.step, self.protected = 1, None
        self.longest: list[float] = []
        self.saved: list[float] = []
        self.kinds: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.failures = 0
        self.world: Any = None

    def _roots(self) -> list[str]:
        return [f"{self.folder}/node{node}" for node in range(NODES)]

    def _started(self) -> Any:
        from ranks import World

        if self.world is None:
            self.world = World(NODES, NODES, self.folder, HEARTH_DEAD_MS=str(DEAD_MS),
                               HEARTH_ALLOW_DEGRADED="0", HEARTH_KEEP="1")
            steps = self._run(found)
            if self.protected is not None and any(
                    step is None or step < self.protected for step in steps):
                self.wrong.append(f"step {self.protected} was PROTECTED, and {steps} were found")
            self.step = max(self.step, *((step or 0) + 1 for step in steps))
        return self.world

    def _run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """On each rank, whose base is in its own node's folder."""
        for pipe, root in zip(self.world._pipes, self._roots(), strict=True):
            pipe.send((function, (f"{root}/job", *args)))
        answers: list[tuple[bool, Any]] = []
        for rank in range(NODES):
            answers.append(self.world._answer(rank, 180.0, answers))
        for rank, (ok, text) in enumerate(answers):
            if not ok:
                raise AssertionError(f"rank {rank}:\n{text}")
        return [value for _, value in answers]

    def _drawn(self) -> list[Fault]:
        pick, kinds = self.random, list(self.kinds_drawn)
        if not os.path.ismount(self._roots()[0]):
            kinds = [kind for kind in kinds if kind != "full"]
        return [Fault(pick.choice(kinds), pick.randrange(NODES), pick.uniform(0.1, 1.5),
                      pick.choice((0.3, 1.0, 2.0 * DEAD_MS / 1000))) for _ in range(2)]

    def round(self, number: int) -> None:
        how, faults = self.random.choice(SAVES), self._drawn()
        removed = [fault.node for fault in faults if fault.kind == "removed"]
        words = ", ".join(f"{f.kind} node{f.node} at {f.at_s:.1f} s for {f.lasts_s:.1f} s"
                          for f in faults)
        before = len(self.wrong)
        try:
            self._started()
            gone = any(fault.kind == "gone" for fault in faults)
            within_s = 0.0 if removed else FALLEN_S if gone else SAVED_S
            for seen in self._faulty(how, faults, within_s):
                self._judge(seen, within_s)
            if removed:
                self._again(removed)
        except BaseException as error:
            if not isinstance(error, (AssertionError, OSError)):
                raise
            self.wrong.append(str(error))
            self._stopped()
        for fault in faults:
            self.kinds[fault.kind] += 1
        self.kinds[how] += 1
        for text in self.wrong[before:]:
            self.say(f"round {number}: {how}; {words}: {text}")

    def _faulty(self, how: str, faults: list[Fault], within_s: float) -> list[Seen]:
        over = f"{self.folder}/over"
        began = time.monotonic()
        threads = [threading.Thread(target=_happen, args=(f, self._roots()[f.node], began))
                   for f in faults]

        def end() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            with open(over, "w"):
                pass

        ender = threading.Thread(target=end)
        ender.start()
        try:
            return self._run(train, self.folder, how, self.step, within_s)
        finally:
            ender.join()
            os.unlink(over)

    def _judge(self, seen: Seen, within_s: float) -> None:
        self.step = max(self.step, seen.step)
        self.longest.append(seen.longest_s)
        self.failures += seen.failures
        limit = 2 * BLOCKED_MS / 1000 + SLOWER_S + 4 * seen.noise_s
        if seen.longest_s > limit:
            self.wrong.append(f"a step took {seen.longest_s:.1f} s, at most {limit:.1f} s is right")
        if seen.saved_s is not None:
            self.saved.append(seen.saved_s)
            self.protected = seen.protected
        elif within_s:
            self.wrong.append(f"no save was PROTECTED within {within_s:.0f} s of the faults' end: "
                              f"{seen.error}")

    def _again(self, removed: list[int]) -> None:
        """The job is started again, as the error says."""
        if len(set(removed)) == NODES:
            self.protected = None  # all copies are gone
        self._stopped()
        self._started()
        self.kinds["started again"] += 1
        for seen in self._faulty("save", [], SAVED_S):
            self._judge(seen, SAVED_S)

    def _stopped(self) -> None:
        if self.world is not None:
            self.world.kill()
            self.world = None

    def close(self) -> None:
        self._stopped()
        for root in self._roots():
            _signal(f"{root}/job", signal.SIGTERM)

    @property
    def text(self) -> str:
        def of(times: list[float]) -> str:
            if not times:
                return "none"
            return f"median {statistics.median(times):.2f} s, worst {max(times):.2f} s"

        drawn = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items()))
        return (f"{len(self.wrong)} violations; the longest call of a round: {of(self.longest)}; "
                f"from the faults' end to PROTECTED: {of(self.saved)}; {drawn}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--folder", required=True, help="an empty folder on a tmpfs")
    options = parser.parse_args()
    if "WEAK_ROUNDS_MOUNTED" not in os.environ:  # mounts of its own, where the system permits them
        os.environ["WEAK_ROUNDS_MOUNTED"] = "1"
        unshare = ["unshare", "--mount"]
        unshare += [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
            os.execvp("unshare", [*unshare, sys.executable, *sys.argv])
    for node in range(NODES):
        os.makedirs(f"{options.folder}/node{node}", exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={TMPFS}", "hearth",
                        f"{options.folder}/node{node}"], capture_output=True)
    if not os.path.ismount(f"{options.folder}/node0"):
        print("no tmpfs can be mounted here: no round has the fault `full`", flush=True)
    rounds = Rounds(options.seed, options.folder, options.kinds.split(","),
                    lambda text: print(text, flush=True))
    try:
        for number in range(options.rounds):
            rounds.round(number)
    finally:
        rounds.close()
    print(f"weak rounds: {options.rounds} of seed {options.seed}: {rounds.text}", flush=True)
    return 1 if rounds.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
