# SPDX-License-Identifier: Apache-2.0
"""Survivors stay alive: when a node is lost, the processes of the others go on.

    from hearth_checkpoint.torch import elastic

    def train(turn):                          # called again, in the same process, after each loss
        model, optimizer = build()            # what holds a process group is made anew
        if turn.path:
            dcp.load(state, checkpoint_id=turn.path, storage_reader=HearthReader())
        for step in range(turn.step + 1, 1000): ...

    elastic.Elastic("/mnt/hearth/my-job").run(train)

Ranks and spares are processes that run this same script, on as many nodes as there are; a launcher
on a machine of its own says who is which rank (MASTER_ADDR and MASTER_PORT, 127.0.0.1:29400):

    python -m hearth_checkpoint.torch.elastic --ranks 32 --listen 10.0.0.1:29400

When a rank is lost, or its train() raises, every rank's train() ends by an exception. Its process
group is torn down, a process that waits takes the seat of the lost one, the newest checkpoint is
recovered, there is a new process group, and train() is called again. A rank that was not lost keeps
its rank, and so finds what it saved on its own node.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from ..errors import HearthError, HearthTimeout
from ..job import Gather
from . import _jobs, _recover
from ._launcher import Launcher, Line

__all__ = ["Elastic", "Turn"]

_PORT = 29400
_TRY = timedelta(seconds=2)  # to connect to a turn's store; then whether it is over is looked at
_log = logging.getLogger("hearth_checkpoint")
_T = TypeVar("_T")


@dataclass
class Turn:
    """What train() is told: who this process is until something is lost.

    number  counts the turns of the job, from 1
    found   what all ranks have recovered; None: nothing, start from scratch or from storage
    lost    set the moment that this turn is known to be broken, before collectives are ended: what
            they gave is not to be believed when it is set, and nothing is saved any more
    marks   time.monotonic() of what led here: "noticed" and "down" of the turn before (a spare has
            neither), "seated", "recovered", "up"
    """

    number: int
    rank: int
    world: int
    base: str
    found: _recover.Recovered | None = None
    lost: threading.Event = field(default_factory=threading.Event)
    marks: dict[str, float] = field(default_factory=dict)

    @property
    def path(self) -> str | None:
        """checkpoint_id of what was recovered."""
        return self.found.path if self.found is not None else None

    @property
    def step(self) -> int:
        """That was recovered; 0: none."""
        return self.found.step if self.found is not None else 0


class Elastic:
    """The loop around a training function, in each process of a job. See above.

    base       of the job, <root>/<job>
    launcher   host and port; None: MASTER_ADDR and MASTER_PORT
    backend    of the process group. NCCL's collectives hang where a peer is lost, and are aborted;
               gloo's raise
    timeout_s  of the process group: a rank that hangs, rather than dies, is noticed after it
    on_lost    called in another thread the moment that a turn is known to be broken: what ends
               anything else that hangs rather than raises
    keep       when the job is done its checkpoints stay; False: they are freed, unless the
               launcher, which alone knows that all are done, is gone
    opts       of hearth_checkpoint.job.Job.open()
    """

    def __init__(self, base: str | os.PathLike | None = None, *,
                 launcher: tuple[str, int] | None = None, backend: str = "gloo",
                 timeout_s: float = 60.0, on_lost: Callable[[], None] | None = None,
                 keep: bool = True, **opts: Any) -> None:
        _jobs.check(opts)
        self.base = _jobs.base_of(base)
        self._at = launcher or (os.environ.get("MASTER_ADDR", "127.0.0.1"),
                                int(os.environ.get("MASTER_PORT", _PORT)))
        self._backend, self._timeout = backend, timedelta(seconds=timeout_s)
        self._on_lost, self._keep, self._opts = on_lost, keep, opts
        self._open_s = opts.get("open_ms", 60000) / 1000
        self._aborts = "nccl" in backend
        self._lock = threading.Lock()  # guards what is below: the launcher's word comes in a thread
        self._turn: Turn | None = None
        self._last_broken = 0
        self._left = threading.Event()  # this process has left the turn
        self._ending: threading.Thread | None = None  # aborts its collectives until then

    def run(self, train: Callable[[Turn], _T]) -> _T | None:
        """What train() returns, once it has on every rank; None in a spare that was not needed.
        Raises HearthError where the job cannot go on: no spare has come, or it fails without a
        loss, again and again."""
        if self._aborts:
            _keep_torch_from_ending_us()
        line = Line(self._at, self._open_s, self._broken)
        marks: dict[str, float] = {}
        keep = True
        try:
            while (turn := self._next(line, marks)) is not None:
                try:
                    result = self._play(turn, line, train)
                except (Exception, CheckpointException) as error:
                    marks = {"noticed": time.monotonic()}
                    line.say(say="failed", turn=turn.number,
                             why=f"{type(error).__name__}: {error}")
                    _log.warning("hearth: rank %d leaves turn %d: %s", turn.rank, turn.number,
                                 str(error).partition("\n")[0])
                else:
                    how = self._over(line, turn)
                    if how != "broken":
                        keep = self._keep or how == "cut"
                        return result
                    marks = {"noticed": time.monotonic()}
                self._tear_down()  # the exception is gone, and with it what its frames held
                marks["down"] = time.monotonic()
            return None
        finally:
            self._left.set()
            _leave_group()
            _jobs.forget(self.base, keep=keep)
            line.close()

    def _next(self, line: Line, marks: dict[str, float]) -> Turn | None:
        """Wait for a seat. None: the job is done."""
        line.say(say="wait", node=os.environ.get("HEARTH_NODE") or os.uname().nodename,
                 local=int(os.environ.get("LOCAL_RANK", 0)), pid=os.getpid())
        while (word := line.hear())["say"] == "broken":
            pass  # the turn that we have left
        if word["say"] != "go":
            return self._ended(word["why"])
        self._join_ending()  # train() may have left before the launcher said "broken"
        turn = Turn(word["turn"], word["rank"], word["world"], self.base,
                    marks={**marks, "seated": time.monotonic()})
        with self._lock:
            self._turn, self._left = turn, threading.Event()
            if self._last_broken == turn.number:
                self._end(turn)
        os.environ.update(RANK=str(turn.rank), WORLD_SIZE=str(turn.world))
        self._port = word["store"]
        return turn

    def _play(self, turn: Turn, line: Line, train: Callable[[Turn], _T]) -> _T:
        """One turn, until train() returns on this rank."""
        _jobs.forget(self.base)  # as it was opened for the turn before
        self._store = self._connect(turn)
        turn.found = _recover.recover(
            self.base, rank=turn.rank, world=turn.world, gather=self._gather(turn), **self._opts)
        turn.marks["recovered"] = time.monotonic()
        dist.init_process_group(
            self._backend, rank=turn.rank, world_size=turn.world, timeout=self._timeout,
            store=dist.PrefixStore("group", self._store))
        turn.marks["up"] = time.monotonic()
        if self._aborts:
            threading.Thread(target=self._watch, args=(turn, line, self._left),
                             daemon=True).start()
        gc.freeze()  # else the collection in _leave_group() walks all of torch: half a second
        result = train(turn)
        _recover.saves_ended(turn.lost)
        line.say(say="done", turn=turn.number)
        return result

    def _connect(self, turn: Turn) -> dist.TCPStore:
        """To the turn's store. torch waits for one that is not there yet, and that of a broken
        turn will never be."""
        until = time.monotonic() + self._timeout.total_seconds()
        while True:
            try:
                store = dist.TCPStore(self._at[0], self._port, is_master=False,
                                      wait_for_workers=False, timeout=_TRY)
            except dist.DistError:
                if turn.lost.is_set() or time.monotonic() > until:
                    raise
            else:
                store.set_timeout(self._timeout)
                return store

    def _over(self, line: Line, turn: Turn) -> str:
        """Wait until all are done: "end". "broken": one was lost that was not. "cut": nobody will
        say so. This rank has done its part, and memory is kept for those that may have not."""
        while True:
            word = line.hear()
            if word["say"] == "end" or word["say"] == "cut" and turn.lost.is_set():
                self._ended(word["why"])
                return "end"
            if word["say"] == "cut":
                _log.warning("hearth: rank %d is done, and whether all are is not known: %s",
                             turn.rank, word["why"])
                return "cut"
            if word["say"] == "broken" and word["turn"] == turn.number:
                return "broken"

    @staticmethod
    def _ended(why: str | None) -> None:
        if why is not None:
            raise HearthError(f"the job has ended: {why}")

    def _broken(self, number: int, why: str) -> None:
        """In the thread that hears the launcher, or in that which watches NCCL."""
        with self._lock:
            turn, self._last_broken = self._turn, max(self._last_broken, number)
            if turn is None or turn.number != number:
                return
            self._end(turn)

    def _end(self, turn: Turn) -> None:
        """The lock is held."""
        if turn.lost.is_set():
            return
        turn.lost.set()
        self._ending = threading.Thread(target=self._end_collectives, args=(self._left,),
                                        daemon=True)
        self._ending.start()

    def _end_collectives(self, left: threading.Event) -> None:
        """Until train() has left: whoever is let go of one may enter the next, or make a group.
        First nothing can be saved any more, for an aborted collective gives anything."""
        if not left.is_set():  # else the job may be that of the next turn
            _close_job(self.base)
        try:
            if self._on_lost is not None:
                self._on_lost()
        finally:
            while self._aborts and not left.is_set():
                if dist.is_initialized():
                    _abort()
                left.wait(0.05)

    def _join_ending(self) -> None:
        """Whatever acts on a loss, on_lost too, does not act in the next turn."""
        with self._lock:
            ending, self._ending = self._ending, None
        if ending is not None:
            ending.join()

    def _watch(self, turn: Turn, line: Line, left: threading.Event) -> None:
        """End the turn when NCCL says that it has failed: with it nobody raises. Also here, and not
        by the launcher's word alone, for it may be out of reach."""
        while not left.wait(1.0):
            with contextlib.suppress(Exception):  # no group, not yet or not any more
                error = dist.group.WORLD._get_backend(torch.device("cuda")).get_error()
                if error.name != "SUCCESS":
                    why = f"NCCL says {error.name}"
                    line.say(say="failed", turn=turn.number, why=why)
                    return self._broken(turn.number, why)

    def _gather(self, turn: Turn) -> Gather:
        """Over the turn's store."""
        store, rounds = self._store, itertools.count()

        def gather(mine: bytes) -> list[bytes]:
            key, until, pause = f"hearth/{next(rounds)}", time.monotonic() + self._open_s, 0.001
            keys = [f"{key}/{rank}" for rank in range(turn.world)]
            try:
                store.set(keys[turn.rank], mine)
                while not store.check(keys):
                    if time.monotonic() > until:
                        raise HearthTimeout(f"not all ranks have come within {self._open_s:g} s")
                    time.sleep(pause)
                    pause = min(0.1, pause * 1.5)
                return [store.get(name) for name in keys]
            except dist.DistNetworkError as error:
                raise HearthError("a rank or the launcher was lost while the ranks were "
                                  "meeting") from error

        return gather

    def _tear_down(self) -> None:
        """Leave the group, and wake who waits in the job. It is closed and stays known until the
        next turn, so that no thread of a save that was left behind opens it again."""
        with self._lock:
            self._left.set()
        self._join_ending()
        _leave_group(abort=self._aborts)
        _close_job(self.base, wait_s=10)


def _keep_torch_from_ending_us() -> None:
    """By default torch's watchdog ends the process where a collective of NCCL fails or is late; and
    first it sleeps for a minute, for the sake of a dump, while no group can be aborted."""
    os.environ.setdefault("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "250")  # of which it sleeps four
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    if os.environ.setdefault(name, "0") != "0":
        raise HearthError(f"{name}={os.environ[name]}: with it torch ends the processes of the "
                          "others when one is lost, or lets them go on with what an aborted "
                          "collective left; hearth_checkpoint.torch.elastic needs 0, or that it is "
                          "not set")


def _abort() -> None:
    """All groups, and what hangs in them. What torch has of them may be half made, or half gone."""
    try:
        dist.distributed_c10d._abort_process_group()
    except Exception as error:
        _log.debug("hearth: abort of the process groups: %s", error)


def _close_job(base: str, wait_s: float = 0) -> None:
    member = _jobs.open_member(base)
    if member is not None:
        member.job.close(wait_s=wait_s)


def _leave_group(*, abort: bool = False) -> None:
    """Gloo closes a group's connections when nothing holds the group any more, and not before: its
    abort() does nothing. By that those ranks hear of a loss which wait for this one, and not for
    the lost one."""
    if dist.is_initialized():
        _abort() if abort else dist.destroy_process_group()
    else:  # torch has counted one that could not be made, and ranks meet under their group's number
        dist.distributed_c10d._world.group_count = 0
    _recover.forget_group()
    gc.collect()
    gc.unfreeze()


def main() -> int:
    """The launcher as a program."""
    parser = argparse.ArgumentParser(
        prog="python -m hearth_checkpoint.torch.elastic",
        description="Says which process is which rank, where ranks run "
                    "hearth_checkpoint.torch.elastic.",
        epilog="Exit status: 0 when all ranks are done, 1 when the job could not go on.")
    parser.add_argument("--ranks", type=int, required=True, help="of the job")
    parser.add_argument("--listen", default=f"127.0.0.1:{_PORT}", metavar="HOST:PORT",
                        help="where processes connect (%(default)s); port 0: any, which is printed")
    parser.add_argument("--start-s", type=float, default=600, help="for the first ranks to come")
    parser.add_argument("--settle-s", type=float, default=30,
                        help="for ranks to leave a turn that is broken, else they count as lost")
    parser.add_argument("--spare-s", type=float, default=600,
                        help="for a spare to come where none waits")
    parser.add_argument("--spare", metavar="COMMAND",
                        help="run by the shell for each lost rank that no spare waits for")
    parser.add_argument("--retries", type=int, default=3,
                        help="of turns in a row that end by a failure and not by a loss")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    host, _, port = args.listen.rpartition(":")
    launcher = Launcher(args.ranks, start_s=args.start_s, settle_s=args.settle_s,
                        spare_s=args.spare_s, retries=args.retries, spare=args.spare)
    why = asyncio.run(launcher.serve(
        host, int(port), lambda bound: print(f"listening on {host}:{bound}", flush=True)))
    if why is not None:
        print(f"hearth_checkpoint.torch.elastic: {why}", file=sys.stderr)
    return 1 if why is not None else 0


if __name__ == "__main__":
    sys.exit(main())
