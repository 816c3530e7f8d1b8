# SPDX-License-Identifier: Apache-2.0
"""Saves of states that change from save to save; functions for ranks.World."""

from __future__ import annotations

from typing import Any

import rank_work as work
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import hearth_checkpoint.torch as ht
import hearth_checkpoint.torch.dcp as dcp


def _state(mesh: Any, number: int, rank: int, how: str) -> dict[str, Any]:
    """how  changes the state of rank 1, or of all ranks"""
    whole = torch.arange(16.0).reshape(4, 4) + number
    placement = Shard(1) if how == "placement" else Replicate() if how == "replicate" else Shard(0)
    state = {"shared": whole.clone(), "n": number,
             "shard": distribute_tensor(whole, mesh, [placement]),
             f"own{rank}": torch.full((3,), float(number + rank))}
    if rank == 1 and how == "key":
        state["more"] = torch.full((2,), float(number))
    elif rank == 1 and how == "shape":
        state["own1"] = torch.full((5,), float(number))
    elif rank == 1 and how == "dtype":
        state["own1"] = state["own1"].half()
    elif rank == 1 and how == "less":
        del state["own1"]
    return state


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value.full_tensor() if isinstance(value, DTensor) else value
            for key, value in state.items()}


def _zeros(state: dict[str, Any]) -> dict[str, Any]:
    return {key: torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0
            for key, value in state.items()}


def changed(how: str, beside: bool) -> list[bool]:
    """Whether each of five saves can be loaded as it was: two of one state, two of a changed one,
    one of the first."""
    rank, base = dist.get_rank(), work.base()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    writer = ht.HearthWriter(base)
    said = []
    for step, now in enumerate(["", "", how, how, ""], 1):
        state = _state(mesh, step, rank, now)
        path = f"{base}/step-{step}_ckpt"
        if beside:
            ht.async_save(state, checkpoint_id=path, storage_writer=writer).result(60)
        else:
            dcp.save(state, checkpoint_id=path, storage_writer=writer)
        target = _zeros(state)
        dcp.load(target, checkpoint_id=path)
        got, want = _plain(target), _plain(state)
        said.append(all(torch.equal(got[key], want[key]) if isinstance(want[key], torch.Tensor)
                        else got[key] == want[key] for key in want))
        dist.barrier()
    ht.leave(base, keep=False)
    return said


def new_writer_on_one_rank() -> list[int]:
    """How often each rank's planner has planned in four saves; rank 1 has another writer from the
    third on."""
    rank, base = dist.get_rank(), work.base()
    writer = ht.HearthWriter(base)
    tokens = set()
    for step in range(1, 5):
        if step == 3 and rank == 1:
            writer = ht.HearthWriter(base)
        state = {"t": torch.full((4,), float(step)), f"own{rank}": torch.ones(2)}
        dcp.save(state, checkpoint_id=f"{base}/step-{step}_ckpt", storage_writer=writer)
        tokens.add(writer.plans.planned.plan.token)
        target = {"t": torch.zeros(4), f"own{rank}": torch.zeros(2)}
        dcp.load(target, checkpoint_id=f"{base}/step-{step}_ckpt")
        assert torch.equal(target["t"], state["t"])
        dist.barrier()
    ht.leave(base, keep=False)
    return len(tokens)
