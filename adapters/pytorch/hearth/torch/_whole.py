# SPDX-License-Identifier: Apache-2.0
"""A trainer's checkpoint as its framework makes it: one nested state of each rank, saved in the
background and read back whole. What hearth.lightning and hearth.accelerate are made of."""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch.distributed.checkpoint._experimental.types import RankInfo

from ..errors import HearthError
from . import _jobs, _weak
from .experimental import Reader, Stager, Writer

_log = logging.getLogger("hearth")


class Saver:
    """Saves of one job, one after another, in a thread.

    on_error  "warn": a save that fails is counted and said in the log (protection())
    """

    def __init__(self, base: str | os.PathLike, *, on_error: str = "warn",
                 level: str = "PROTECTED", **opts: Any) -> None:
        _weak.check(on_error)
        self.base, self._on_error = _jobs.base_of(base), on_error
        self._stager = Stager(base=self.base, **opts)
        self._writer = Writer(level=level, **opts)
        self._last: Future[Any] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def save(self, name: str, state: Any) -> Future[Any]:
        """Copy the state and return; it is written as base/name. Collective. Waits for the save
        before."""
        path = f"{self.base}/{name}"
        _, step = _jobs.resolve(path, self.base, None)  # refused now, and not by the thread
        self.wait()
        future = _weak.call(self.base, self._on_error, lambda: self._submit(path, step, state))
        self._last = future if future is not None else _weak.none_yet()
        return self._last

    def _submit(self, path: str, step: int, state: Any) -> Future[Any]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "hearth-save")
        try:
            staged = self._stager.stage(state)
        except Exception:
            self._cancel(step)
            raise
        return self._thread.submit(self._write, path, staged)

    def _cancel(self, step: int) -> None:
        """The other ranks would wait for this one's part of the step."""
        member = _jobs.open_member(self.base)
        try:
            if member is not None:
                member.job.begin(step, 0).abort()
        except HearthError as error:  # then they wait until their time is over
            _log.warning("hearth: step %d is not cancelled on the other ranks: %s", step, error)

    def _write(self, path: str, staged: Any) -> str:
        self._writer.write(path, staged)
        return path

    def wait(self) -> None:
        """Until the last save has ended. Raises what it raised, once."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """End the last save, give up what was staged. It may be used again."""
        try:
            self.wait()
        finally:
            self._stager.close()
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.shutdown()


def read(path: str | os.PathLike, *, rank: int | None = None, trust: bool = False,
         map_location: Any = None) -> Any:
    """A rank's state of a save, this one's if none is said, all of it new. Collective where the job
    is not open yet."""
    whose = None if rank is None else RankInfo(global_rank=rank, global_world_size=rank + 1)
    state, _ = Reader(whose, trust=trust).read(path, map_location=map_location)
    return state
