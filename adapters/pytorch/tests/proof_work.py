# SPDX-License-Identifier: Apache-2.0
"""What ranks do in tests of ids, of proofs and of items that are refused."""

from __future__ import annotations

from typing import Any

import rank_work as work
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

import hearth_checkpoint.torch as ht
from hearth_checkpoint.torch import HearthReader, HearthWriter
from hearth_checkpoint.torch import _write


def said(error: CheckpointException) -> str:
    return f"{sorted(error.failures)} {[str(e[0]) for e in error.failures.values()]}"


def second_id(step: int) -> str:
    """Two ids for one step; what each rank hears of the second."""
    state = {"w": torch.ones(4), "n": 1}
    for name in ("model", "optimizer"):
        try:
            dcp.save(state, checkpoint_id=f"{work.base()}/{name}_{step}",
                     storage_writer=HearthWriter(work.base(), step=step))
        except CheckpointException as error:
            return said(error)
    return "it did not fail"


class Own:
    """An object of the user's."""

    def __init__(self, value: int) -> None:
        self.value = value


def refused_item(folder: str, step: int, trust: bool) -> tuple[Any, ...]:
    """A checkpoint in memory with an object of rank 1's own, over an older one in a folder."""
    me = dist.get_rank()
    dcp.save({"w": torch.full((4,), 5.0)},
             storage_writer=dcp.FileSystemWriter(f"{folder}/disk/5"))
    state: dict[str, Any] = {"w": torch.full((4,), float(step)), f"n{me}": me}
    if me == 1:
        state["own"] = Own(7)
    dcp.save(state, checkpoint_id=work.path(step), storage_writer=HearthWriter(work.base()))
    target: dict[str, Any] = {"w": torch.zeros(4), f"n{me}": -1}
    if me == 1:
        target["own"] = None
    try:
        found = ht.load_latest(target, base=work.base(), trust=trust,
                               fallback=dcp.FileSystemReader(f"{folder}/disk"))
    except CheckpointException as error:
        return said(error), float(target["w"][0]), target[f"n{me}"]
    return found, float(target["w"][0]), target[f"n{me}"]


def refused_metadata(step: int) -> tuple[str, str]:
    """A save whose `.metadata` no reader takes, then one that works."""
    from torch.distributed.checkpoint import metadata as module

    class Changed(module.BytesStorageMetadata):
        def __reduce__(self) -> Any:
            return complex, (1, 2)

    class Planner(dcp.DefaultSavePlanner):
        def create_global_plan(self, all_plans: Any) -> Any:
            plans, metadata = super().create_global_plan(all_plans)
            metadata.state_dict_metadata["n"] = Changed()
            return plans, metadata

    out = []
    for planner in (Planner(), None):
        try:
            dcp.save({"w": torch.ones(3), "n": 1}, checkpoint_id=work.path(step), planner=planner,
                     storage_writer=HearthWriter(work.base()))
            out.append("")
        except CheckpointException as error:
            out.append(said(error))
    target = {"w": torch.zeros(3), "n": 0}
    dcp.load(target, checkpoint_id=work.path(step), storage_reader=HearthReader())
    return out[0], out[1]


def never_decoded(step: int, asynchronous: bool) -> str:
    """Rank 1 saves an item whose bytes nobody will ever decode."""
    state: dict[str, Any] = {"w": torch.ones(3)}
    if dist.get_rank() == 1:
        state["deep"] = {"bad": 1}
    real = _write.encode_item
    _write.encode_item = lambda value: real(value)[:-1]
    writer = HearthWriter(work.base())
    try:
        if asynchronous:
            dcp.async_save(state, checkpoint_id=work.path(step), storage_writer=writer,
                           process_group=ht.group()).result(60)
        else:
            dcp.save(state, checkpoint_id=work.path(step), storage_writer=writer)
        return "it did not fail"
    except CheckpointException as error:
        return said(error)
    finally:
        _write.encode_item = real
