# SPDX-License-Identifier: Apache-2.0
"""Process groups of our own, beside the training's.

They are held weakly: dist.destroy_process_group() is to end them, and the default group, with their
threads. One that lives until the interpreter ends has a thread of gloo's that frees a tensor then,
now and then, and so ends the process by SIGABRT.
"""

from __future__ import annotations

import weakref
from datetime import timedelta
from typing import Any

import torch.distributed as dist


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
        return group

    def forget(self) -> None:
        """The next make() makes another."""
        self._default = self._group = _dead
