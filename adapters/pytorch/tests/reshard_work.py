# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_interchange.py and test_reader.py: plain DCP checkpoints, one model cut in
several ways, and ranks that differ."""

from __future__ import annotations

import logging
import os
import shutil
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import hearth_checkpoint.torch as ht
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs
from hearth_checkpoint.torch._pickles import load_metadata
from rank_work import base, job_base, meshes, path, whole


def flat_target(container: str) -> dict[str, Any]:
    """What a container's `.metadata` lists, to be filled: zeros, None for byte items."""
    with open(f"{container}/.metadata", "rb") as file:
        metadata = load_metadata(file.read())
    return {name: torch.zeros(entry.size, dtype=entry.properties.dtype)
            if isinstance(entry, TensorStorageMetadata) else None
            for name, entry in metadata.state_dict_metadata.items()}


# ---- plain DCP checkpoints -----------------------------------------------------------------------


def _plain_state() -> dict[str, Any]:
    mesh, me = meshes()["flat"], dist.get_rank()
    return {
        "rows": distribute_tensor(whole(1, 9, 4), mesh, [Shard(0)]),
        "columns": distribute_tensor(whole(2, 4, 9).to(torch.bfloat16), mesh, [Shard(1)]),
        "copies": distribute_tensor(whole(3, 5), mesh, [Replicate()]),
        "empty_on_one": distribute_tensor(whole(4, 1, 3), mesh, [Shard(0)]),
        f"own{me}": torch.full((7,), float(me)), "step": torch.tensor(31),
        "nested": {"lr": 0.25, "names": ["a", "b"], "who": {f"rank{me}": me}}}


def full(value: Any) -> Any:
    """A copy with each DTensor whole. Collective."""
    if isinstance(value, torch.Tensor):
        return (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
    if isinstance(value, dict):
        return {key: full(child) for key, child in value.items()}
    if isinstance(value, list):
        return [full(child) for child in value]
    return value


def _zeros(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: _zeros(child) for key, child in value.items()}
    return None


def save_plain_dcp(folder: str) -> dict[str, Any]:
    """With torch's FileSystemWriter, into one folder that all see."""
    state = _plain_state()
    dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{folder}/plain"))
    return full(state)


def spread(job: str, folder: str, name: str, leave_out: str = "") -> None:
    """Onto this rank's node: what this rank wrote, on the first also `.metadata`."""
    me, there = dist.get_rank(), f"{job_base(job)}/{name}"
    os.makedirs(there, mode=0o700)
    for file in os.listdir(f"{folder}/plain"):
        mine = file.startswith(f"__{me}_") or (file == ".metadata" and me == 0)
        if mine and file != leave_out:
            shutil.copy(f"{folder}/plain/{file}", f"{there}/{file}")
    assert os.listdir(there) or leave_out
    dist.barrier()


def recover_and_read(job: str) -> tuple[str | None, int, list[dict[str, Any]]]:
    """The container's name, bytes that came from peers, and the state, loaded as it was cut and
    with its rows and columns cut the other way."""
    found = ht.recover(job_base(job))
    assert found is not None
    states = []
    for turned in (False, True):
        target = _zeros(_plain_state())
        if turned:
            target["rows"] = target["rows"].redistribute(placements=target["columns"].placements)
            target["columns"] = target["columns"].redistribute(placements=[Shard(0)])
        dcp.load(target, checkpoint_id=found.path, storage_reader=HearthReader())
        states.append(full(target))
    return os.path.basename(found.path), found.info.pulled_bytes, states


def latest_and_log(job: str) -> tuple[str | None, str]:
    """What latest() finds, and the errors it logs."""
    lines: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hearth_checkpoint").addHandler(handler)
    try:
        return ht.latest(job_base(job)), "\n".join(lines)
    finally:
        logging.getLogger("hearth_checkpoint").removeHandler(handler)


# ---- a model cut in several ways -----------------------------------------------------------------


class Model(nn.Module):
    """Its last layer has fewer rows than there are ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(7, 16), nn.Linear(16, 10), nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.three(torch.relu(self.two(torch.relu(self.one(x)))))


def _cut(model: nn.Module, way: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    world = dist.get_world_size()
    if way in ("fsdp", "tp"):
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("x",))
        shard = tensor = mesh
    else:
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("a", "b"))
        shard, tensor = (mesh, mesh) if way == "hsdp" else (mesh["a"], mesh["b"])
    if "tp" in way:
        parallelize_module(model, tensor, {"one": ColwiseParallel(), "two": RowwiseParallel()})
    if "sdp" in way:
        for layer in (model.one, model.two, model.three, model):
            fully_shard(layer, mesh=shard)


def _build(way: str, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = Model()
    _cut(model, way)
    # foreach cannot take parameters of which some are DTensors and some are not
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True, foreach=False)


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for i in range(steps):
        optimizer.zero_grad()
        model(whole(100 + i, 4, 7)).pow(2).sum().backward()
        optimizer.step()


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def train_and_save(way: str, step: int) -> dict[str, Any]:
    """The whole state that was saved."""
    model, optimizer = _build(way, seed=1)
    _train(model, optimizer, 3)
    state = _state(model, optimizer)
    dcp.save(state, checkpoint_id=path(step), storage_writer=HearthWriter(base()))
    return full(state)


def load_and_gather(way: str, step: int) -> dict[str, Any]:
    """A new epoch; another model, filled from what was recovered, and what it holds then."""
    _jobs.forget(base())
    assert ht.latest(base()) == path(step)
    model, optimizer = _build(way, seed=2 + dist.get_rank())
    state = _state(model, optimizer)
    dcp.load(state, checkpoint_id=path(step), storage_reader=HearthReader())
    set_state_dict(model, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"])
    held = full(_state(model, optimizer))
    _train(model, optimizer, 1)  # it can go on
    return held


def leave_keeping() -> None:
    """These ranks go; what they saved stays with the nodes."""
    for name in _jobs.open_bases():
        _jobs.forget(name)
    dist.barrier()


# ---- loads that must not differ between ranks ----------------------------------------------------


def load_different_steps(one: int, other: int) -> str:
    """Each rank asks for another step, both of which are kept."""
    state = {"w": torch.ones(4), "n": 1}
    writer = HearthWriter(base(), keep=2)
    for step in (one, other):
        dcp.save(state, checkpoint_id=path(step), storage_writer=writer)
    mine = (one, other)[dist.get_rank()]
    try:
        dcp.load(state, checkpoint_id=path(mine), storage_reader=HearthReader())
    except dcp.api.CheckpointException as error:
        return str(error)
    return "they loaded"


def one_cannot_recover(folder: str, step: int,
                       error: BaseException) -> tuple[int | str | None, float]:
    """load_latest() where one rank cannot recover, and cannot look into a folder on storage: the
    step or what was raised, and what the state has then."""
    from pathlib import Path

    from hearth_checkpoint.torch import _recover

    state = {"w": torch.full((4,), float(step))}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{folder}/disk/{step}"))
    state["w"].zero_()
    dcp.save(state, checkpoint_id=path(step + 1), storage_writer=HearthWriter(base()))
    real = _recover.recover
    if dist.get_rank() == 1:
        def broken(*args: object, **kwargs: object) -> None:
            real(*args, **kwargs)
            raise error
        _recover.recover = broken
    seen, look = [], Path.exists

    def exists(self: Path) -> bool:
        seen.append(self)
        if dist.get_rank() == 1 and len(seen) == 1:
            raise PermissionError("made to fail")
        return look(self)

    Path.exists = exists
    try:
        found = ht.load_latest(state, base=base(), fallback=dcp.FileSystemReader(f"{folder}/disk"))
    except Exception as raised:
        found = f"{type(raised).__name__}: {raised}"
    finally:
        _recover.recover, Path.exists = real, look
    return found, float(state["w"][0])
