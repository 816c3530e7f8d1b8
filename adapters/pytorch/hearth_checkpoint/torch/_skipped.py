# SPDX-License-Identifier: Apache-2.0
"""Staged saves that wait to be written, and those of them that all ranks give up.

A rank may have skipped a save that the other ranks have staged (on_error="warn"): such a save
cannot be PROTECTED. Before a save is written, each rank sends the number of the next save that it
has not skipped. All ranks give up the saves before the highest of these numbers, without another
message, so a long row of skipped saves takes no longer than one:

    rank 0   1  2  -  -  -  -  7          before 3 the ranks send 7 and 3: both give up 3 to 6,
    rank 1   1  2  3  4  5  6  7          and exchange numbers again before 7
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

import torch.distributed as dist

from ..errors import HearthBusy

_lock = threading.Lock()


class _Queue:
    """The saves of a process group, in order. All ranks number them in the same way."""

    def __init__(self) -> None:
        self.made = 0
        self.waiting: deque[Entry] = deque()
        self.next = 0  # saves with lower numbers are given up
        self.why = ""  # why those saves are given up


class Entry:
    """A save in its queue. agree() is called for each save, in order."""

    def __init__(self, queue: _Queue, group: Any, error: BaseException | None) -> None:
        self._queue, self._group, self._error = queue, group, error
        self._number = queue.made
        queue.made += 1
        queue.waiting.append(self)

    def _wants(self) -> tuple[int, str]:
        """The next save that this rank has not skipped yet, and why it has skipped this one."""
        number = self._number
        if self._error is None:
            return number, ""
        for later in self._queue.waiting:
            if later._error is None:
                return later._number, f"{self._error}"
            number = later._number
        return number + 1, f"{self._error}"

    def agree(self) -> None:
        """If any rank of the group has skipped the save, raises on all of its ranks. Collective,
        unless an earlier call has decided about this save."""
        queue = self._queue
        with _lock:
            queue.waiting.remove(self)
            if self._number < queue.next:
                raise self._error or HearthBusy(queue.why, -109, "HEARTH_EBUSY")
            mine = self._wants()
        said: list[Any] = [mine]
        if self._group is not None and dist.get_world_size(self._group) > 1:
            said = [None] * dist.get_world_size(self._group)
            dist.all_gather_object(said, mine, group=self._group)
        queue.next = max(number for number, _ in said)
        if queue.next > self._number:
            queue.why = "the save is skipped: " + "; ".join(
                f"rank {rank}: {why}" for rank, (_, why) in enumerate(said) if why)
            raise self._error or HearthBusy(queue.why, -109, "HEARTH_EBUSY")


_alone = _Queue()
_queues: weakref.WeakKeyDictionary[Any, _Queue] = weakref.WeakKeyDictionary()


def enter(group: Any, error: BaseException | None) -> Entry:
    """The next save of the group (None: of this rank alone). error: why this rank skips it."""
    with _lock:
        queue = _alone if group is None else _queues.setdefault(group, _Queue())
        return Entry(queue, group, error)
