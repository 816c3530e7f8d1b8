# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of the experimental checkpointers: a state, a hook and a barrier."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.distributed.checkpoint._experimental.barriers import Barrier
from torch.distributed.checkpoint._experimental.checkpoint_writer import WriterHook

from hearth_checkpoint.errors import HearthNotFound
from hearth_checkpoint.torch import _jobs, _names

DEADLINE_S = 60


def small_state() -> dict[str, Any]:
    """A tensor and a number."""
    return {"w": torch.arange(5.0), "n": {"step": 3}}


def kept(base: str, path: str) -> bool:
    """Whether Hearth has the step that the path names."""
    step = _names.step_of(os.path.basename(path))
    try:
        _jobs.membership(base, {}).job.checkpoint(step).close()
    except HearthNotFound:
        return False
    return True


class Hook(WriterHook):
    """Notes its calls, and what Hearth has of the step by then."""

    def __init__(self, base: str = "", fail: str = "") -> None:
        self.calls: list[tuple[str, str, dict]] = []
        self.base, self.fail = base, fail
        self.kept: list[bool] = []

    def _note(self, name: str, path: str, kwargs: dict) -> None:
        self.calls.append((name, path, kwargs))
        if self.base:
            self.kept.append(kept(self.base, path))
        if name == self.fail:
            raise ValueError(f"{name} says no")

    def pre_commit(self, path: str, **kwargs: Any) -> None:
        self._note("pre_commit", path, kwargs)

    def post_commit(self, path: str, **kwargs: Any) -> None:
        self._note("post_commit", path, kwargs)


class Gate(Barrier):
    """A barrier of one rank."""

    def __init__(self, hook: Hook, fail: bool = False) -> None:
        self.hook, self.fail = hook, fail

    def execute_barrier(self) -> None:
        self.hook.calls.append(("barrier", "", {}))
        if self.fail:
            raise TimeoutError("a rank did not come")
