# SPDX-License-Identifier: Apache-2.0
"""Process groups of our own, beside the training's.

None may stand when the interpreter ends. A thread of gloo's frees the tensors of a collective when
the ranks have gone on already; if it comes to that when the interpreter takes itself apart, Python
ends the thread, and a destructor of torch's through which the thread would end makes that SIGABRT.
So they are held weakly: dist.destroy_process_group() ends them, and the default group, with their
threads. Those that still stand when the program is over are ended then.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from datetime import timedelta
from typing import Any

import torch.distributed as dist


_standing: weakref.WeakSet[Any] = weakref.WeakSet()


def _dead() -> None:
    """A weak reference to nothing."""


class OwnGroup:
    """A gloo group of all ranks, made anew where the default group was."""

    def __init__(self, timeout: timedelta = timedelta(minutes=30)) -> None:
        self._timeout = timeout
        self._default: Any = _dead
        self._group: Any = _dead

    def standing(self) -> Any:
        """The group, if it was made and the process group it was made beside still is."""
        group = self._group()
        return group if group is not None and self._default() is dist.group.WORLD else None

    def make(self) -> Any:
        """The group. Collective the first time."""
        group = self.standing()
        if group is None:
            group = dist.new_group(backend="gloo", timeout=self._timeout)
            self._default, self._group = weakref.ref(dist.group.WORLD), weakref.ref(group)
            _standing.add(group)
        return group

    def forget(self) -> None:
        """The next make() makes another."""
        self._default = self._group = _dead

    def end(self) -> None:
        """Its threads and connections, for nobody waits in it any more. Not collective: what the
        others are still to read is with them."""
        group = self.standing()
        self.forget()
        if group is not None:
            _standing.discard(group)
            dist.destroy_process_group(group)


def _end() -> None:
    """What the threads of saves used has ended when this is called; a group's own are joined."""
    while _standing:
        with contextlib.suppress(ValueError):  # torch has forgotten it, and somebody holds it
            dist.destroy_process_group(_standing.pop())


atexit.register(_end)
os.register_at_fork(after_in_child=_standing.clear)  # a forked child has none of its threads
