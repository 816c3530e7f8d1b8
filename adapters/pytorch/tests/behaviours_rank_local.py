# SPDX-License-Identifier: Apache-2.0
"""Behaviours of torch.distributed.checkpoint._experimental: torch's parts, and Hearth's in their
place."""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist
from behaviour import Place, behaviour, outcome, plain
from behaviours_alone import net, small
from behaviours_ranks import flat
from ranks import port
from torch.distributed.checkpoint._experimental import barriers, builder, checkpointer
from torch.distributed.checkpoint._experimental.checkpoint_reader import CheckpointReader
from torch.distributed.checkpoint._experimental.checkpoint_writer import (
    CheckpointWriter,
    CheckpointWriterConfig,
    WriterHook,
)
from torch.distributed.checkpoint._experimental.config import CheckpointerConfig
from torch.distributed.checkpoint._experimental.staging import (
    CheckpointStagerConfig,
    DefaultStager,
)
from torch.distributed.checkpoint._experimental.types import RankInfo

from hearth_checkpoint.torch import experimental

DEADLINE_S = 60.0


def me() -> RankInfo:
    if dist.is_initialized():
        return RankInfo(global_rank=dist.get_rank(), global_world_size=dist.get_world_size())
    return RankInfo(global_rank=0, global_world_size=1)


def writer(at: Place, **parts: Any) -> Any:
    return (experimental.Writer if at.memory else CheckpointWriter)(
        CheckpointWriterConfig(), me(), parts.get("barrier"), parts.get("hook"))


def reader(at: Place) -> Any:
    return (experimental.Reader if at.memory else CheckpointReader)(me())


def sync(at: Place, **parts: Any) -> Any:
    """torch's own checkpointer over a writer and a reader."""
    return checkpointer.SyncCheckpointer(writer(at, **parts), reader(at))


def beside(at: Place) -> Any:
    """An asynchronous one. Torch's process would be started for each case anew: the thread in its
    place is Hearth's in both."""
    stager = (experimental.Stager(me(), base=at.folder) if at.memory else
              DefaultStager(CheckpointStagerConfig(False, False, False, False)))
    return checkpointer.AsyncCheckpointer(
        stager, experimental.InlineProcess(writer(at)), reader(at))


class Hook(WriterHook):
    def __init__(self, seen: list[Any], fails: str = "") -> None:
        self.seen, self.fails = seen, fails

    def pre_commit(self, path: str, **kwargs: Any) -> None:
        self._note("before", path, kwargs)

    def post_commit(self, path: str, **kwargs: Any) -> None:
        self._note("after", path, kwargs)

    def _note(self, when: str, path: str, kwargs: dict[str, Any]) -> None:
        self.seen.append((when, os.path.basename(path), kwargs))
        if when == self.fails:
            raise ValueError("made to fail")


class Noting(barriers.Barrier):
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def execute_barrier(self) -> None:
        self.seen.append(("barrier", "", {}))


@behaviour()
def rank_local_states_come_back(at: Place) -> Any:
    """Everything, into a state of the caller's, and a module's."""
    own = sync(at)
    own.save(at.path(1), small())
    mine = {"w": torch.zeros(4, 6), "opt": {"lr": 0.0}}
    filled = own.load(at.path(1), mine)
    assert filled is mine
    whole = plain(own.load(at.path(1)))
    own.save(at.path(2), net(1).state_dict())
    module = plain(dict(own.load(at.path(2))))
    own.close()
    return whole, plain(filled), module


@behaviour()
def rank_local_states_lack_keys(at: Place) -> Any:
    own = sync(at)
    own.save(at.path(), small())
    target = {"w": torch.zeros(4, 6), "new": 1}
    strict = outcome(lambda: own.load(at.path(), {**target}, strict=True))
    return strict, plain(own.load(at.path(), target))


@behaviour(cases=(torch.zeros(4, 7), torch.zeros(4, 6, dtype=torch.float64), 5, [1]))
def rank_local_targets_that_do_not_fit(at: Place, target: Any) -> Any:
    own = sync(at)
    own.save(at.path(), small())
    return outcome(lambda: own.load(at.path(), {"w": target}))


@behaviour()
def rank_local_checkpoints_that_are_not_there(at: Place) -> Any:
    own = sync(at)
    own.save(at.path(), small())
    return outcome(lambda: own.load(at.path(7)))


@behaviour(cases=("", "before", "after"))
def hooks_and_barriers_of_a_rank_local_write(at: Place, fails: str) -> Any:
    seen: list[Any] = []
    own = sync(at, hook=Hook(seen, fails), barrier=Noting(seen))
    found = outcome(lambda: own.save(at.path(), small(), epoch=4))
    return found, seen


@behaviour()
def rank_local_saves_beside_training(at: Place) -> Any:
    own = beside(at)
    state, read = small(), []
    for step in (1, 2, 3):
        staged, written = own.save(at.path(step), state)
        staged.result(DEADLINE_S)
        state["w"].add_(1.0)
        written.result(DEADLINE_S)
        read.append(plain(own.load(at.path(step))))
    own.close()
    return read


@behaviour(differs="a failed write is raised at the next save once, and the save after works; "
                   "torch's raises it for ever")
def rank_local_saves_after_a_failure(at: Place) -> Any:
    class Failing(type(writer(at))):  # type: ignore[misc]
        fails = True

        def write(self, *args: Any, **kwargs: Any) -> Any:
            if self.fails:
                raise ValueError("made to fail")
            return super().write(*args, **kwargs)

    write = Failing(CheckpointWriterConfig(), me())
    stager = (experimental.Stager(me(), base=at.folder) if at.memory else
              DefaultStager(CheckpointStagerConfig(False, False, False, False)))
    kind = experimental.AsyncCheckpointer if at.memory else checkpointer.AsyncCheckpointer
    own = kind(stager, experimental.InlineProcess(write), reader(at))
    found: list[Any] = []
    for step in (1, 2, 3):
        answer = outcome(lambda step=step: own.save(at.path(step), small(step)))
        written = answer[1] if isinstance(answer, tuple) else answer
        found.append(outcome(lambda written=written: written.result(DEADLINE_S))
                     if isinstance(written, Future) else written)
        write.fails = False
    own.close()
    kinds = ["ok" if each is None else each.kinds[-1][0] for each in found]
    assert kinds == (["ValueError", "ValueError", "ok"] if at.memory else ["ValueError"] * 3), kinds
    return kinds


@behaviour()
def a_rank_local_checkpointer_of_a_configuration(at: Place) -> Any:
    make = (experimental if at.memory else builder).make_sync_checkpointer
    seen: list[Any] = []
    own = make(CheckpointerConfig(writer_config=CheckpointWriterConfig(30)), me(), Hook(seen))
    own.save(at.path(), small())
    found = plain(own.load(at.path()))
    own.close()
    return found, seen


@behaviour()
def a_barrier_that_nobody_knows(at: Place) -> Any:
    make = (experimental if at.memory else builder).make_sync_checkpointer
    config = CheckpointerConfig(barrier_config=barriers.BarrierConfig("no such barrier"))
    return outcome(lambda: make(config, me()) and "made")


@behaviour(ranks=True, cases=("none", "dist_barrier", "tcp_store"))
def each_rank_its_own_state_with_torchs_barriers(at: Place, kind: str) -> Any:
    arguments: dict[str, Any] = {}
    if kind == "tcp_store":
        arguments = {"global_rank": dist.get_rank(), "global_world_size": 4, "barrier_prefix": "b",
                     "timeout_barrier_init_secs": 30, "timeout_secs": 30,
                     "use_checkpoint_barrier_tcpstore_libuv": True, "tcpstore_port": _port(),
                     "master_address": "127.0.0.1"}
    config = CheckpointerConfig(barrier_config=barriers.BarrierConfig(
        None if kind == "none" else kind, arguments))
    own = (experimental if at.memory else builder).make_sync_checkpointer(config, me())
    read = []
    for step in (1, 2):
        own.save(at.path(step), {**small(dist.get_rank() + step), "who": dist.get_rank()})
        read.append(plain(own.load(at.path(step))))
    own.close()
    assert [each["who"] for each in read] == [dist.get_rank()] * 2
    dist.barrier()
    return read


def _port() -> int:
    """The same on all ranks."""
    found = [port() if dist.get_rank() == 0 else 0]
    dist.broadcast_object_list(found)
    return found[0]


@behaviour(ranks=True)
def dtensors_of_a_rank_local_state(at: Place) -> Any:
    """Each rank's own part, no more."""
    from torch.distributed.tensor import Shard, distribute_tensor

    value = torch.arange(28.0).view(7, 4)
    own = sync(at)
    own.save(at.path(), {"d": distribute_tensor(value, flat(), [Shard(0)]).to_local(), "n": 2})
    found = plain(own.load(at.path()))
    dist.barrier()
    return found
