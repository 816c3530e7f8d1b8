# SPDX-License-Identifier: Apache-2.0
"""What ranks do in tests of _whole.Saver."""

from __future__ import annotations

import time
from typing import Any

import rank_work as work
import torch
import torch.distributed as dist

import hearth.torch as ht
from hearth.torch import _whole


def fail_on_one_rank(where: str) -> tuple[float, int, Any]:
    """Rank 1 fails at a save of step 2: how long it took, failures, and what came after."""
    saver, before = _whole.Saver(work.base()), ht.protection(work.base()).failures
    good = {"w": torch.full((3,), 1.0 + dist.get_rank())}
    bad = {"make": lambda: 1 / 0, "stage": lambda: {"w": torch.eye(2).to_sparse()},
           "proof": lambda: {"w": good["w"], "n": Unread()}}[where]
    saver.save("1", lambda: good).result()
    begun = time.monotonic()
    saver.save("2", bad if dist.get_rank() == 1 else lambda: good).result()
    took = time.monotonic() - begun
    saver.save("3", lambda: good).result()
    saver.close()
    held = ht.protection(work.base())
    back = _whole.read(f"{work.base()}/3")
    assert torch.equal(back["w"], good["w"])
    return took, held.failures - before, held.step


class Unread:
    """What no load could make again, not even one with trust."""

    def __reduce__(self) -> Any:
        return eval, ("1 / 0",)
