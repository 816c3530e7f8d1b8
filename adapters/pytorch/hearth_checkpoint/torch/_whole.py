# SPDX-License-Identifier: Apache-2.0
"""A trainer's checkpoint as its framework makes it: one nested state of each rank, saved in the
background and read back whole. What hearth_checkpoint.lightning and hearth_checkpoint.accelerate
are made of."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch.distributed as dist

from ..errors import HearthCorrupt, HearthError
from . import _jobs, _names, _weak
from ._group import OwnGroup
from ._rank_local import Reader, Stager, Writer, prove


class Saver(_weak.Saves):
    """Saves in a thread.

    alone     this rank's number, where it saves and the others do not: they have joined the job
              before, and read what it has saved. None: all ranks save
    """

    def __init__(self, base: str | os.PathLike, *, on_error: str = "warn",
                 level: str = "PROTECTED", alone: int | None = None, **opts: Any) -> None:
        super().__init__(base, on_error)
        self._alone = alone
        self._stager = Stager(base=self.base, ranks=None if alone is None else (alone,), **opts)
        self._writer = Writer(level=level, **opts)
        self._thread: ThreadPoolExecutor | None = None
        self._group = OwnGroup()  # that the thread alone uses

    def save(self, name: str, make: Callable[[], Any]) -> Future[Any]:
        """Copy the state that make() gives and return; it is written as base/name. What make()
        raises is a failure of the save. Collective, unless one rank saves alone. Waits for the save
        before, with "warn" as long as for the engine: then this one is skipped, on all ranks."""
        path = f"{self.base}/{name}"
        _jobs.resolve(path, self.base, None)  # refused now, and not by the thread
        if self._alone is not None and _jobs.open_member(self.base) is None:
            raise HearthError(f"{path}: a rank that saves alone cannot join the job alone: all "
                              "ranks call recover() or newest() before")
        return self._next(lambda skip: self._submit(path, skip or make))

    def _submit(self, path: str, make: Callable[[], Any]) -> Future[Any]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "hearth-save")
        alone = self._alone is not None or not (
            dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1
        group = None if alone else self._group.make()
        staged, error = None, None
        try:
            staged = self._stager.stage(make())
        except Exception as raised:  # for all ranks to hear of
            error = raised
        return self._thread.submit(self._write, path, staged, error, group)

    def _write(self, path: str, staged: Any, error: Exception | None, group: Any) -> str:
        """Where a rank has nothing to write, the others do not begin: they would wait for it."""
        try:
            member = _jobs.open_member(self.base)
            if error is None and member is not None:
                prove(member.job, path, staged)
        except Exception as raised:
            error = raised
        errors: list[str | None] = [None if error is None else f"{error}"]
        if group is not None:
            errors *= dist.get_world_size()
            dist.all_gather_object(errors, errors[0], group=group)
        wrong = [f"rank {rank}: {text}" for rank, text in enumerate(errors) if text is not None]
        if wrong:
            if staged is not None:
                staged.give_up()
            raise error if error is not None else HearthError("; ".join(wrong))
        self._writer.write(path, staged)
        return path

    def close(self) -> None:
        """End the last save, give up what was staged. It may be used again."""
        try:
            self.wait()
        finally:
            self._stager.close()
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.shutdown()
            self._group.end()


def read(path: str | os.PathLike, *, rank: int | None = None, trust: bool = False,
         map_location: Any = None) -> Any:
    """A rank's state of a save, this one's if none is said, all of it new; where another rank has
    saved alone, that one's. Collective where the job is not open yet."""
    try:
        return _read(path, rank, trust, map_location)
    except HearthCorrupt:
        other = _who_saved_alone(path) if rank is None else None
        if other is None:
            raise
    return _read(path, other, trust, map_location)


def _read(path: str | os.PathLike, rank: int | None, trust: bool, map_location: Any) -> Any:
    state, _ = Reader(rank, trust=trust).read(path, map_location=map_location)
    return state


def _who_saved_alone(path: str | os.PathLike) -> int | None:
    """The rank whose state is all that a save has, if it is another than this one."""
    member = _jobs.open_member(os.path.dirname(os.path.abspath(os.fspath(path))))
    step = _names.step_of(os.path.basename(os.fspath(path).rstrip("/")))
    if member is None or step is None:
        return None
    checkpoint = member.job.checkpoint(step)
    try:
        objects = {item.object for item in checkpoint.items(True)}
    finally:
        checkpoint.close()
    named = [re.fullmatch(r"checkpoint_(\d+)\.pt", name) for name in objects]
    if len(named) != 1 or named[0] is None or int(named[0][1]) == member.job.rank:
        return None
    return int(named[0][1])
