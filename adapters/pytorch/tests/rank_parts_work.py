# SPDX-License-Identifier: Apache-2.0
"""What ranks do in tests of the experimental checkpointers' parts."""

from __future__ import annotations

from typing import Any

import rank_work as work
import torch
import torch.distributed as dist

import hearth_checkpoint.torch as ht
from hearth_checkpoint.torch import _jobs
from hearth_checkpoint.torch.experimental import (
    Reader,
    make_async_checkpointer,
    make_sync_checkpointer,
)

BOTH = ("model", "optimizer")


def state(part: str, step: int) -> dict[str, Any]:
    value = 10.0 * step + dist.get_rank() + (0.5 if part == "optimizer" else 0)
    return {"w": torch.full((7,), value), "n": [step, part]}


def saved(step: int, asynchronous: bool) -> list[int]:
    make = make_async_checkpointer if asynchronous else make_sync_checkpointer
    more = {"base": work.base()} if asynchronous else {}
    each = {part: make(part=part, parts=BOTH, **more) for part in BOTH}
    said = [each[part].save(work.path(step), state(part, step)) for part in BOTH]
    for answer in said if asynchronous else ():
        answer[1].result(60)
    dist.barrier()
    kept = [save.step for save in _jobs.open_member(work.base()).job.kept()]
    for one in each.values():
        one.close()
    return kept


def again(step: int) -> list[bool]:
    """As after a restart of the ranks: each part, and both."""
    _jobs.forget(work.base())
    assert ht.latest(work.base()) == work.path(step)
    both, _ = Reader().read(work.path(step))
    read = {part: Reader(part=part).read(work.path(step))[0] for part in BOTH}
    return [torch.equal(of["w"], state(part, step)["w"]) and of["n"] == [step, part]
            for found in (both, read) for part, of in found.items()]


def one_fails(step: int) -> tuple[str, list[int]]:
    """On rank 1 the second part cannot be written; the step again works."""
    checkpointer = make_sync_checkpointer(parts=BOTH)
    checkpointer.save(f"{work.path(step)}/model", state("model", step))
    dist.barrier()  # a rank that comes to its first part later than that finds the save given up
    wrong = {"w": torch.zeros(3).to_sparse()} if dist.get_rank() == 1 else state("optimizer", step)
    try:
        checkpointer.save(f"{work.path(step)}/optimizer", wrong)
        said = "nothing"
    except Exception as error:
        said = f"{error}"
    dist.barrier()
    for part in BOTH:
        checkpointer.save(f"{work.path(step + 1)}/{part}", state(part, step + 1))
    dist.barrier()
    return said, [save.step for save in _jobs.open_member(work.base()).job.kept()]
