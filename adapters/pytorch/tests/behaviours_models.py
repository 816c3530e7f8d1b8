# SPDX-License-Identifier: Apache-2.0
"""Behaviours of whole models on four ranks: cut in all ways that torch has, saved in all ways, and
trained on."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from behaviour import Place, behaviour, plain
from behaviours_async import finished, stager, through
from behaviours_ranks import flat, square, whole
from torch import nn
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy, StateDictType, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

WAYS = ("ddp", "fsdp1", "fsdp1 on a mesh", "hsdp1", "fsdp2", "hsdp2", "tp", "fsdp2 and tp")
CPU = torch.device("cpu")


class Model(nn.Module):
    """rows: of the last layer; fewer than there are ranks where torch can load that."""

    def __init__(self, rows: int = 3) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(7, 16), nn.Linear(16, 10), nn.Linear(10, rows)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.three(torch.relu(self.two(torch.relu(self.one(x)))))


def cut(model: nn.Module, way: str) -> nn.Module:
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if way in ("fsdp1", "fsdp1 on a mesh"):
        return FSDP(model, device_id=CPU, use_orig_params=True,
                    device_mesh=None if way == "fsdp1" else flat())
    if way == "hsdp1":
        return FSDP(model, device_id=CPU, use_orig_params=True, device_mesh=square(),
                    sharding_strategy=ShardingStrategy.HYBRID_SHARD)
    if "tp" in way:
        parallelize_module(model, flat() if way == "tp" else square()["b"],
                           {"one": ColwiseParallel(), "two": RowwiseParallel()})
    if way != "tp":
        mesh = {"fsdp2": flat, "hsdp2": square, "fsdp2 and tp": lambda: square()["a"]}[way]()
        for layer in (model.one, model.two, model.three, model):
            fully_shard(layer, mesh=mesh)
    return model


def build(way: str, seed: int, rows: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = cut(Model(rows), way)
    # foreach cannot take parameters of which some are DTensors and some are not
    return model, torch.optim.AdamW(model.parameters(), lr=0.01 * seed, foreach=False)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    for i in range(steps):
        optimizer.zero_grad()
        model(whole(100 + i, 4, 7)).pow(2).sum().backward()
        optimizer.step()


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer, options=StateDictOptions(**options))
    return {"model": weights, "optimizer": moments}


def put(model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any],
        **options: Any) -> None:
    set_state_dict(model, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optimizer"], options=StateDictOptions(**options))


def started(at: Place, state: dict[str, Any], how: str, step: int = 1) -> Any:
    """The save; what finished() waits for, or None."""
    if how == "save":
        at.save(state, step)
        return None
    if how == "process":
        return at.start(state, step, async_checkpointer_type=AsyncCheckpointerType.PROCESS)
    return at.start(state, step, **through(stager("default") if how == "own stager" else None))


def saved_and_loaded(at: Place, way: str, how: str, other: str, **options: Any) -> Any:
    """Train, save, train on beside it; then load into another model, and train that on."""
    rows = 7 if "fsdp1" in (way, other) else 3  # a rank without rows cannot load FSDP1's there
    model, optimizer = build(way, 1, rows)
    train(model, optimizer)
    wanted = plain(state_of(model, optimizer, full_state_dict=True))
    answer = started(at, state_of(model, optimizer, **options), how)
    train(model, optimizer)
    if answer is not None:
        finished(answer)
    model, optimizer = build(other, 2, rows)
    read = state_of(model, optimizer, **options)
    at.load(read)
    put(model, optimizer, read, **options)
    found = plain(state_of(model, optimizer, full_state_dict=True))
    assert not differing(found, wanted), differing(found, wanted)
    train(model, optimizer)
    return plain(found), plain(state_of(model, optimizer, full_state_dict=True))


def differing(one: Any, other: Any, path: str = "") -> list[str]:
    """Keys whose tensors are not close, or values not equal."""
    if isinstance(one, dict):
        return ([f"{path}: {sorted(map(str, one))} and {sorted(map(str, other))}"]
                if one.keys() != other.keys() else
                [line for key in one for line in differing(one[key], other[key], f"{path}.{key}")])
    if isinstance(one, (list, tuple)):
        return [line for a, b in zip(one, other) for line in differing(a, b, path)]
    equal = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    return [] if equal else [path]


@behaviour(ranks=True, cases=tuple(
    (way, how) for way in WAYS for how in ("save", "thread", "own stager", "process")
    if (way, how) != ("fsdp1", "own stager")),  # torch's stagers take no ShardedTensor
    needs=lambda case: "async_stager" if case[1] == "own stager" else "")
def a_model_and_its_optimizer_go_on(at: Place, case: Any) -> Any:
    way, how = case
    return saved_and_loaded(at, way, how, way)


@behaviour(ranks=True, cases=(
    ("fsdp1", "fsdp2"), ("fsdp1 on a mesh", "fsdp2"), ("fsdp1 on a mesh", "fsdp2 and tp"),
    ("fsdp1", "tp"), ("fsdp2", "fsdp1"), ("fsdp2 and tp", "tp"), ("tp", "fsdp2 and tp"),
    ("hsdp2", "fsdp2"), ("hsdp1", "fsdp1 on a mesh"), ("ddp", "fsdp2"), ("fsdp2 and tp", "ddp"),
    ("tp", "hsdp2")))
def a_model_goes_on_cut_in_another_way(at: Place, case: Any) -> Any:
    return saved_and_loaded(at, case[0], "save", case[1])


@behaviour(ranks=True, cases=("ddp", "fsdp1", "fsdp2", "fsdp2 and tp"))
def optimizers_with_flat_names(at: Place, way: str) -> Any:
    return saved_and_loaded(at, way, "save", way, flatten_optimizer_state_dict=True)


@behaviour(ranks=True, cases=("ddp", "fsdp2", "tp"))
def whole_states_on_the_host(at: Place, way: str) -> Any:
    """full_state_dict with cpu_offload: rank 0 alone has something to save. FSDP1 on CPUs ends in
    torch's own get_state_dict() there, before anything is saved."""
    model, optimizer = build(way, seed=1)
    train(model, optimizer)
    how = {"full_state_dict": True, "cpu_offload": True}
    state = state_of(model, optimizer, **how)
    assert bool(state["model"]) == (dist.get_rank() == 0)
    at.save(state)
    train(model, optimizer)
    weights = {name: torch.zeros(value.shape) for name, value in Model().state_dict().items()}
    return plain(at.load({"model": weights}))


@behaviour(ranks=True)
def parameters_that_are_frozen(at: Place) -> Any:
    """Left out of the checkpoint, and as they were after the load."""
    model, _ = build("fsdp2", seed=1)
    for parameter in model.two.parameters():
        parameter.requires_grad_(False)
    options = StateDictOptions(ignore_frozen_params=True)
    at.save({"model": get_model_state_dict(model, options=options)})
    other, _ = build("fsdp2", seed=2)
    for parameter in other.two.parameters():
        parameter.requires_grad_(False)
    read = {"model": get_model_state_dict(other, options=options)}
    assert not any(name.startswith("two") for name in read["model"])
    at.load(read)
    set_model_state_dict(other, read["model"], options=StateDictOptions(
        ignore_frozen_params=True, strict=False))
    return plain(get_model_state_dict(other))


@behaviour(ranks=True, cases=("tp", "fsdp2"))
def a_model_on_the_meta_device_is_filled(at: Place, way: str) -> Any:
    model, _ = build(way, seed=1)
    at.save({"model": get_model_state_dict(model)})
    with torch.device("meta"):
        other = cut(Model(), way)
    state = {"model": get_model_state_dict(other)}
    at.load(state)
    other.load_state_dict(state["model"], assign=True)
    assert not any(parameter.is_meta for parameter in other.parameters())
    return plain(get_model_state_dict(other))


@behaviour(ranks=True, cases=(False, True))
def sharded_optimizers_of_fsdp1(at: Place, planned: bool) -> Any:
    """FSDP1's own calls, and load_sharded_optimizer_state_dict()."""
    model, optimizer = build("fsdp1", seed=1)
    train(model, optimizer)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        at.save({"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer)})
    wanted = plain(state_of(model, optimizer, full_state_dict=True))
    model, optimizer = build("fsdp1", seed=2)
    train(model, optimizer)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = {"model": model.state_dict()}
        at.load(state)
        model.load_state_dict(state["model"])
        read = load_sharded_optimizer_state_dict(
            state["model"], "optim", at.reader(1),
            planner=dcp.DefaultLoadPlanner() if planned else None)
        optimizer.load_state_dict(
            FSDP.optim_state_dict_to_load(model, optimizer, read["optim"]))
    found = plain(state_of(model, optimizer, full_state_dict=True))
    assert not differing(found["model"], wanted["model"])
    return found


@behaviour(ranks=True)
def pretrained_weights_under_a_new_head(at: Place) -> Any:
    """FSDP2, saved by the pretraining, loaded below another module, saved as that, twice."""
    body, optimizer = build("fsdp2", seed=1)
    train(body, optimizer)
    at.save({"model": get_model_state_dict(body)})
    torch.manual_seed(3)
    tuned = nn.Sequential(Model(), nn.Linear(3, 2))
    for layer in (tuned[0], tuned[1], tuned):
        fully_shard(layer, mesh=flat())
    weights = get_model_state_dict(tuned[0])
    at.load({"model": weights})
    set_model_state_dict(tuned[0], weights)
    optimizer = torch.optim.AdamW(tuned.parameters(), lr=0.02, foreach=False)
    train(tuned, optimizer)
    for step in (2, 3):
        finished(at.start(state_of(tuned, optimizer), step))
        train(tuned, optimizer)
    read = state_of(tuned, optimizer)
    at.load(read, 3)
    return plain(read)


@behaviour(ranks=True)
def stages_of_a_pipeline(at: Place) -> Any:
    """Two stages of two ranks each, that share no name but their optimizers' settings."""
    mesh = square("stage", "dp")
    stage = dist.get_rank() // 2

    def make(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed + stage)
        model = nn.ModuleDict({str(stage): nn.Linear(7, 7)})
        fully_shard(model[str(stage)], mesh=mesh["dp"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)
        model[str(stage)](whole(60, 4, 7)).sum().backward()
        optimizer.step()
        return model, optimizer

    first, second = make(1), make(5)
    options = {"flatten_optimizer_state_dict": True}
    wanted = plain(state_of(*first, **options))
    at.save(state_of(*first, **options))
    read = state_of(*second, **options)
    at.load(read)
    put(*second, read, **options)
    found = plain(state_of(*second, **options))
    assert not differing(found, wanted), differing(found, wanted)
    return found
