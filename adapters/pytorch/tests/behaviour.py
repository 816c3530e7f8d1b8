# SPDX-License-Identifier: Apache-2.0
"""Behaviours of torch.distributed.checkpoint: each is run with torch's files and in memory.

    @behaviour()                        one process, no process group
    @behaviour(ranks=True)              on each of four ranks, of two nodes
    @behaviour(cases=("a", "b"))        once with each, as the second argument
    @behaviour(differs="why")           the two results are not the same: the table has the reason
    @behaviour(needs="async_stager")    not with a torch that lacks it (lacks.WHY); needs= may be a
                                        function of the case, which gives "" where nothing is needed

A behaviour is a function of a Place. It asserts what holds whatever the place is, and what it
returns with files must be what it returns in memory; see alike(). BEHAVIOURS.md lists all.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from lacks import WHY
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor

import hearth_checkpoint.torch as ht
from hearth_checkpoint.torch import HearthReader, HearthWriter

MODULES = ("behaviours_alone", "behaviours_planner", "behaviours_async", "behaviours_ranks",
           "behaviours_models", *(() if WHY["experimental"] else ("behaviours_rank_local",)))
TIMEOUT_S = 60.0


class Place:
    """Where a behaviour saves and loads."""

    memory = False

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, step: int = 1) -> str:
        return f"{self.folder}/step-{step}_ckpt"

    def writer(self, step: int | None = None, **options: Any) -> Any:
        """A new one. step: of what is saved without an id."""
        return dcp.FileSystemWriter(self.path(step or 0), **options)

    def reader(self, step: int | None = None, **options: Any) -> Any:
        return dcp.FileSystemReader(self.path(step or 0), **options)

    def save(self, state: dict[str, Any], step: int = 1, **more: Any) -> Any:
        more.setdefault("storage_writer", self.writer())
        return dcp.save(state, checkpoint_id=self.path(step), **more)

    def start(self, state: dict[str, Any], step: int = 1, **more: Any) -> Any:
        """dcp.async_save()."""
        more.setdefault("storage_writer", self.writer())
        if dist.is_initialized():
            more.setdefault("process_group", ht.group())
        return dcp.async_save(state, checkpoint_id=self.path(step), **more)

    def load(self, state: dict[str, Any], step: int = 1, **more: Any) -> dict[str, Any]:
        more.setdefault("storage_reader", self.reader())
        dcp.load(state, checkpoint_id=self.path(step), **more)
        return state


class Memory(Place):
    memory = True

    def writer(self, step: int | None = None, **options: Any) -> Any:
        return HearthWriter(self.folder, step=step, timeout_s=TIMEOUT_S, **options)

    def reader(self, step: int | None = None, **options: Any) -> Any:
        return HearthReader(self.folder, step=step, **options)


@dataclass(frozen=True)
class Behaviour:
    run: Callable[..., Any]
    ranks: bool
    differs: str
    cases: tuple[Any, ...]
    needs: Callable[[Any], str]


KNOWN: dict[str, Behaviour] = {}


def behaviour(*, ranks: bool = False, differs: str = "", cases: tuple[Any, ...] = (),
              needs: str | Callable[[Any], str] = "") -> Any:
    def note(run: Callable[..., Any]) -> Callable[..., Any]:
        assert run.__name__ not in KNOWN, run.__name__
        KNOWN[run.__name__] = Behaviour(
            run, ranks, differs, cases, needs if callable(needs) else lambda case: needs)
        return run

    return note


def known() -> dict[str, Behaviour]:
    """All of them, by name."""
    for name in MODULES:
        importlib.import_module(name)
    return KNOWN


def run(name: str, place: Place, case: Any) -> Any:
    """What it gives on this rank. Its plans are not those of a behaviour before."""
    chosen = known()[name]
    forget_plans()
    return chosen.run(place, case) if chosen.cases else chosen.run(place)


def run_on_rank(name: str, files: str, memory: bool, case: Any) -> Any:
    """run() in a process of ranks.World. files: a folder that all ranks see."""
    if not memory:
        return run(name, Place(files), case)
    base = f"{os.environ['HEARTH_ROOT']}/{os.environ['HEARTH_JOB']}"
    return run(name, Memory(base), case)


def forget_plans() -> None:
    """DCP's planners remember plans by the name of their class, for the whole process."""
    from torch.distributed.checkpoint.planner import SavePlanner

    for name in ("_cached_save_plan", "_cached_final_save_plan", "_cached_all_plans",
                 "_cached_global_plan", "_cached_metadata"):
        getattr(SavePlanner, name).clear()


# ---- what they give ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raised:
    """A call that failed: of each rank that did, its exception's classes, itself first."""

    kinds: dict[int, list[str]]


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or how it fails."""
    try:
        return call()
    except CheckpointException as error:
        return Raised({rank: _kinds(failure[0]) for rank, failure in error.failures.items()})
    except Exception as error:
        return Raised({-1: _kinds(error)})


def _kinds(error: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__]


def plain(value: Any) -> Any:
    """A copy that can be compared: DTensors whole, which is collective; of ShardedTensors this
    rank's parts."""
    if isinstance(value, DTensor):
        return value.full_tensor().detach().clone()
    if isinstance(value, ShardedTensor):
        return [(list(shard.metadata.shard_offsets), shard.tensor.detach().clone())
                for shard in value.local_shards()]
    if isinstance(value, torch.Tensor):
        return value.detach().resolve_conj().clone()
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(plain(child) for child in value)
    return value


def zeros(value: Any) -> Any:
    """Something to load into: the same shapes and kinds, other values. DTensors stay cut as they
    are."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value, requires_grad=False)
    if isinstance(value, dict):
        return {key: zeros(child) for key, child in value.items()}
    if isinstance(value, list):
        return [zeros(child) for child in value]
    return type(value)() if isinstance(value, (int, float, str, bytes)) else None


def alike(files: Any, memory: Any, path: str = "") -> list[str]:
    """Where the two differ. A failure of Hearth's may be of a class below torch's."""
    if isinstance(files, Raised) and isinstance(memory, Raised):
        if files.kinds.keys() != memory.kinds.keys():
            return [f"{path}: {files} and {memory}"]
        return [f"{path}: rank {rank}: {kinds[0]} is none of {memory.kinds[rank]}"
                for rank, kinds in files.kinds.items() if kinds[0] not in memory.kinds[rank]]
    if type(files) is not type(memory):
        return [f"{path}: {files!r} and {memory!r}"]
    if isinstance(files, torch.Tensor):
        equal = (files.dtype == memory.dtype and files.shape == memory.shape
                 and torch.equal(files, memory))
        return [] if equal else [f"{path}: {files} and {memory}"]
    if isinstance(files, dict):
        if list(files) != list(memory):
            return [f"{path}: keys {list(files)} and {list(memory)}"]
        return [line for key in files for line in alike(files[key], memory[key], f"{path}.{key}")]
    if isinstance(files, (list, tuple)):
        if len(files) != len(memory):
            return [f"{path}: {files!r} and {memory!r}"]
        return [line for i, (a, b) in enumerate(zip(files, memory))
                for line in alike(a, b, f"{path}[{i}]")]
    return [] if files == memory else [f"{path}: {files!r} and {memory!r}"]
