# SPDX-License-Identifier: Apache-2.0
"""What ranks do in tests of _whole.Saver."""

from __future__ import annotations

import time
from typing import Any

import rank_work as work
import torch
import torch.distributed as dist

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.torch import _whole


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


def alone() -> list[float]:
    """Rank 0 saves a step, all do the next, rank 0 that again and one more: what each reads."""
    me = dist.get_rank()
    ht.recover(work.base())
    one = _whole.Saver(work.base(), on_error="raise", alone=me)
    every = _whole.Saver(work.base(), on_error="raise")
    read = []

    def save(saver: _whole.Saver, step: int, value: float) -> None:
        if saver is every or me == 0:
            saver.save(f"{step}", lambda: {"w": torch.full((3,), value)}).result()
        dist.barrier()
        read.append(float(_whole.read(f"{work.base()}/{step}")["w"][0]))
        dist.barrier()

    save(one, 1, 1.0)
    save(every, 2, 20.0 + me)
    save(one, 3, 3.0)
    save(one, 4, 4.0)
    every.close()
    one.close()
    return read


def alone_before_all_have_joined() -> str:
    try:
        _whole.Saver(work.base(), on_error="raise", alone=dist.get_rank()).save(
            "1", lambda: {"w": torch.ones(3)})
    except HearthError as error:
        return f"{error}"
    return "it was saved"


class Unread:
    """What no load could make again, not even one with trust."""

    def __reduce__(self) -> Any:
        return eval, ("1 / 0",)
