# SPDX-License-Identifier: Apache-2.0
"""Behaviours on four ranks: DTensors, ShardedTensors, other shards, who writes what, failures."""

from __future__ import annotations

import re
import threading
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from behaviour import Place, behaviour, outcome, plain, zeros
from behaviours_alone import Counter
from behaviours_async import finished
from behaviours_planner import (
    LOAD_HOOKS,
    LOAD_PLANNER_HOOKS,
    SAVE_HOOKS,
    SAVE_PLANNER_HOOKS,
    failing,
)
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import (
    ChunkShardingSpec,
    EnumerableShardingSpec,
    ShardMetadata,
)
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.metadata import TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._shards_wrapper import LocalShardsWrapper


def whole(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@cache  # torch keeps a mesh's groups for good: three threads each, that look 100 times a second
def flat() -> DeviceMesh:
    return init_device_mesh("cpu", (4,))


@cache
def square(one: str = "a", other: str = "b") -> DeviceMesh:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=(one, other))


def state_of(me: int) -> dict[str, Any]:
    """Cut, replicated and own values."""
    return {"cut": distribute_tensor(whole(1, 9, 4), flat(), [Shard(0)]),
            "same": torch.arange(5.0), f"own{me}": torch.full((3,), float(me)), "n": 7,
            "deep": {"lr": 0.5, f"who{me}": me}}


# ---- DTensors ------------------------------------------------------------------------------------

ONE = ([Shard(0)], [Shard(1)], [Replicate()])
TWO = ([Shard(0), Shard(1)], [Shard(1), Shard(0)], [Shard(0), Replicate()], [Replicate(), Shard(1)],
       [Shard(0), Shard(0)], [Replicate(), Replicate()])


@behaviour(ranks=True, cases=((8, 12), (7, 5), (3, 2)))
def dtensors_are_cut_in_another_way(at: Place, shape: Any) -> Any:
    """From every way of one mesh into every way of the other; (3, 2) leaves ranks with nothing."""
    meshes = {1: flat(), 2: square()}
    ways = [(1, way) for way in ONE] + [(2, way) for way in TWO]
    value = whole(2, *shape)
    state = {f"{i}.{j}": distribute_tensor(value, meshes[dims], way)
             for i, (dims, way) in enumerate(ways) for j in range(len(ways))}
    at.save(state)
    target = {f"{i}.{j}": distribute_tensor(torch.zeros(shape), meshes[dims], way)
              for i in range(len(ways)) for j, (dims, way) in enumerate(ways)}
    at.load(target)
    read = plain(target)
    assert all(torch.equal(each, value) for each in read.values())
    return read["0.1"]


@behaviour(ranks=True)
def dtensors_and_tensors_stand_for_each_other(at: Place) -> Any:
    at.save({"cut": distribute_tensor(whole(3, 6, 5), flat(), [Shard(0)]), "plain": whole(4, 6, 5)})
    target = {"cut": torch.zeros(6, 5),
              "plain": distribute_tensor(torch.zeros(6, 5), flat(), [Shard(1)])}
    return plain(at.load(target))


@behaviour(ranks=True)
def dtensors_of_some_of_the_ranks(at: Place) -> Any:
    """Experts: two ranks hold one, the other two the other; what all share lies on all."""
    mesh = square()
    mine = mesh["b"]
    expert = dist.get_rank() // 2
    state = {f"experts.{expert}": distribute_tensor(whole(10 + expert, 6, 4), mine, [Shard(0)]),
             "shared": distribute_tensor(whole(12, 8, 4), mesh, [Replicate(), Shard(0)])}
    at.save(state)
    read = plain(at.load(zeros(state)))
    assert torch.equal(read[f"experts.{expert}"], whole(10 + expert, 6, 4))
    return read


@behaviour(ranks=True)
def targets_on_the_meta_device_are_made(at: Place) -> Any:
    at.save({"cut": distribute_tensor(whole(5, 7, 4), flat(), [Shard(0)]), "plain": whole(6, 3),
             "deep": [whole(7, 2), {"x": whole(8, 2)}], "n": 4})
    with torch.device("meta"):
        target = {"cut": distribute_tensor(torch.empty(7, 4), flat(), [Shard(1)]),
                  "plain": torch.empty(3), "deep": [torch.empty(2), {"x": torch.empty(2)}], "n": 0}
    return plain(at.load(target))


class Part(torch.Tensor):
    """A tensor that says itself which part of the whole it is, as DCP lets one."""

    whole: tuple[int, ...]
    at: tuple[int, ...]

    @staticmethod
    def make(data: torch.Tensor, shape: tuple[int, ...], offset: tuple[int, ...]) -> Part:
        part = data.as_subclass(Part)
        part.whole, part.at = shape, offset
        return part

    def size(self) -> torch.Size:  # type: ignore[override]
        return torch.Size(self.whole)

    def _chunk(self) -> ChunkStorageMetadata:
        return ChunkStorageMetadata(torch.Size(self.at), self.shape)

    def __create_write_items__(self, fqn: str, _: Any) -> list[WriteItem]:
        data = TensorWriteData(self._chunk(), TensorProperties(dtype=self.dtype), self.size())
        return [WriteItem(MetadataIndex(fqn, self.at), WriteItemType.SHARD, tensor_data=data)]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [self._chunk()]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        assert tuple(index.offset or ()) == self.at
        return self.as_subclass(torch.Tensor)


def rows(lengths: list[int], value: torch.Tensor) -> Part:
    """This rank's rows of a value, some ranks having more than others."""
    me = dist.get_rank()
    start = sum(lengths[:me])
    return Part.make(value[start:start + lengths[me]].clone(), tuple(value.shape), (start, 0))


@behaviour(ranks=True)
def tensors_that_say_what_part_they_are(at: Place) -> Any:
    value = whole(20, 12, 3)
    at.save({"t": rows([1, 4, 5, 2], value)})
    target = {"t": rows([3, 3, 2, 4], torch.zeros(12, 3))}
    at.load(target)
    read = target["t"].as_subclass(torch.Tensor)
    start = sum([3, 3, 2, 4][:dist.get_rank()])
    assert torch.equal(read, value[start:start + len(read)])
    return read


def in_shards(value: torch.Tensor, starts: list[list[int]]) -> DTensor:
    """A DTensor of which each rank has several column blocks of two."""
    mine = starts[dist.get_rank()]
    local = LocalShardsWrapper([value[:, i:i + 2].clone() for i in mine], [(0, i) for i in mine])
    return DTensor.from_local(local, flat(), [Shard(1)], run_check=False, shape=value.shape,
                              stride=value.stride())


@behaviour(ranks=True)
def dtensors_of_several_shards_a_rank(at: Place) -> Any:
    value = whole(21, 3, 12)
    at.save({"t": in_shards(value, [[0, 6], [2], [4, 8], [10]])})
    target = {"t": in_shards(torch.zeros(3, 12), [[10], [8, 0], [2, 4], [6]])}
    at.load(target)
    shards = target["t"].to_local().local_shards()
    for start, shard in zip([[10], [8, 0], [2, 4], [6]][dist.get_rank()], shards):
        assert torch.equal(shard, value[:, start:start + 2])
    return shards


# ---- ShardedTensors ------------------------------------------------------------------------------


def chunked(dim: int, shape: tuple[int, ...], order: str = "0123") -> Any:
    return ChunkShardingSpec(dim, [f"rank:{r}/cpu" for r in order]), shape


def blocks(shape: tuple[int, int], parts: list[tuple[int, int, int, int, int]]) -> Any:
    """(row, column, rows, columns, rank) of each."""
    return EnumerableShardingSpec([
        ShardMetadata([r, c], [h, w], f"rank:{rank}/cpu") for r, c, h, w, rank in parts]), shape


LAYOUTS = {
    "rows": lambda: chunked(0, (8, 12)),
    "rows, other order": lambda: chunked(0, (8, 12), "2031"),
    "columns": lambda: chunked(1, (8, 12)),
    "blocks": lambda: blocks((8, 12), [(0, 0, 3, 12, 1), (3, 0, 5, 5, 0), (3, 5, 5, 4, 3),
                                       (3, 9, 5, 3, 2)]),
    "two ranks": lambda: blocks((8, 12), [(0, 0, 8, 7, 0), (0, 7, 8, 5, 3)]),
}


def sharded(layout: str, value: torch.Tensor) -> Any:
    spec, shape = LAYOUTS[layout]()
    out = sharded_tensor.empty(spec, *shape)
    for shard in out.local_shards():
        (r, c), (h, w) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
        shard.tensor.copy_(value[r:r + h, c:c + w])
    return out


@behaviour(ranks=True, cases=tuple(LAYOUTS))
def shardedtensors_are_cut_in_another_way(at: Place, layout: str) -> Any:
    value = whole(30, 8, 12)
    at.save({f"into {i}": sharded(layout, value) for i in range(len(LAYOUTS))}
            | {"into a tensor": sharded(layout, value), "into a dtensor": sharded(layout, value)})
    target: dict[str, Any] = {f"into {i}": sharded(other, torch.zeros(8, 12))
                              for i, other in enumerate(LAYOUTS)}
    target["into a tensor"] = torch.zeros(8, 12)
    target["into a dtensor"] = distribute_tensor(torch.zeros(8, 12), flat(), [Shard(1)])
    at.load(target)
    assert torch.equal(target["into a tensor"], value)
    for key in list(target)[:len(LAYOUTS)]:
        for shard in target[key].local_shards():
            (r, c), (h, w) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
            assert torch.equal(shard.tensor, value[r:r + h, c:c + w])
    return plain(target)


@behaviour(ranks=True)
def tensors_become_shardedtensors(at: Place) -> Any:
    at.save({"t": whole(31, 8, 12)})
    return plain(at.load({"t": sharded("blocks", torch.zeros(8, 12))}))


class Gated(dcp.DefaultSavePlanner):
    """Waits until the state was changed, before anything of it is written."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def create_local_plan(self) -> Any:
        assert self._gate.wait(60)
        return super().create_local_plan()


@behaviour(ranks=True)
def shardedtensors_beside_training(at: Place) -> Any:
    value = sharded("blocks", whole(32, 8, 12))
    finished(at.start({"t": value, "deep": {"u": sharded("columns", whole(33, 8, 12))}, "n": 3}))
    return plain(at.load({"t": sharded("rows", torch.zeros(8, 12)),
                          "deep": {"u": sharded("rows", torch.zeros(8, 12))}, "n": 0}))


@behaviour(ranks=True)
def shardedtensors_keep_the_moment(at: Place) -> Any:
    value = sharded("blocks", whole(32, 8, 12))
    gate = threading.Event()
    answer = at.start({"t": value}, planner=Gated(gate))
    for shard in value.local_shards():
        shard.tensor.zero_()
    gate.set()
    finished(answer)
    read = at.load({"t": torch.zeros(8, 12)})
    assert torch.equal(read["t"], whole(32, 8, 12))
    return read


@behaviour(ranks=True,
           differs="DTensors of several shards a rank are staged; torch's own stager cannot")
def dtensors_of_several_shards_beside_training(at: Place) -> Any:
    value = whole(34, 3, 12)
    found = outcome(lambda: finished(at.start(
        {"t": in_shards(value, [[0, 6], [2], [4, 8], [10]])})) and "saved")
    if at.memory:
        assert torch.equal(at.load({"t": torch.zeros(3, 12)})["t"], value)
    return found


# ---- who writes what -----------------------------------------------------------------------------


def writers(at: Place, step: int = 1) -> dict[str, int]:
    """Of each key, the rank in whose file or object it lies."""
    where = at.reader(step).read_metadata().storage_data
    return {f"{index.fqn} {tuple(index.offset or ())}":
            int(re.match(r"__(\d+)_", info.relative_path)[1])  # type: ignore[index]
            for index, info in sorted(where.items(), key=lambda each: str(each[0]))}


@behaviour(ranks=True, cases=(False, True))
def what_all_ranks_have_is_written_once(at: Place, lowest: bool) -> Any:
    """By the one with the least to write, or by the lowest; keys of one rank by that one."""
    me = dist.get_rank()
    state = {f"same{i}": torch.full((10 + i,), float(i)) for i in range(8)} | {
        f"own{me}": torch.ones(3 * me + 1), "n": 4, "text": "x",
        "copies": distribute_tensor(whole(40, 6, 2), square(), [Replicate(), Shard(0)])}
    at.save(state, planner=dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=lowest))
    at.load(zeros(state))
    found = writers(at)
    assert len(found) == 8 + 4 + 2 + 2
    return found


@behaviour(ranks=True)
def keys_of_some_ranks_come_back_to_them(at: Place) -> Any:
    state = state_of(dist.get_rank())
    at.save(state)
    return plain(at.load(zeros(state)))


@behaviour(ranks=True)
def a_key_of_another_rank_can_be_loaded(at: Place) -> Any:
    me = dist.get_rank()
    at.save(state_of(me))
    other = (me + 1) % 4
    return plain(at.load({f"own{other}": torch.zeros(3), "deep": {f"who{other}": -1}}))


@behaviour(ranks=True)
def an_empty_state_on_some_ranks(at: Place) -> Any:
    me = dist.get_rank()
    at.save({f"own{me}": torch.ones(2)} if me in (1, 2) else {})
    return plain(at.load({"own1": torch.zeros(2)} if me == 0 else {}))


@behaviour(ranks=True)
def stateful_on_all_ranks(at: Place) -> Any:
    at.save({"counter": Counter(6), "n": 1})
    counter = Counter(0)
    at.load({"counter": counter, "n": 0})
    return counter.value, counter.tensor, counter.told


@behaviour(ranks=True)
def another_rank_may_coordinate(at: Place) -> Any:
    """In the deprecated calls, which have a word for it."""
    import warnings

    state = state_of(dist.get_rank())
    target = zeros(state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        dcp.save_state_dict(state, at.writer(1), coordinator_rank=2)
        dcp.load_state_dict(target, at.reader(1), coordinator_rank=1)
    return plain(target)


@behaviour(ranks=True)
def another_group_of_all_ranks(at: Place) -> Any:
    state = state_of(dist.get_rank())
    group = dist.new_group(backend="gloo")
    at.save(state, process_group=group)
    return plain(at.load(zeros(state), process_group=group))


@behaviour(ranks=True, needs="use_collectives")
def each_rank_for_itself_without_collectives(at: Place) -> Any:
    me = dist.get_rank()
    at.save({"w": torch.full((4,), float(me)), "who": me}, use_collectives=False)
    return plain(at.load({"w": torch.zeros(4), "who": -1}))


@behaviour(ranks=True)
def plans_remembered_on_all_ranks(at: Place) -> Any:
    """The same plan three times, then a change on one rank alone."""
    me, read = dist.get_rank(), []
    for step in (1, 2, 3, 4, 5):
        state = {**state_of(me), "n": step}
        if step == 4 and me == 2:
            state["new"] = torch.ones(4)
        at.save(state, step, planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
        read.append(plain(at.load(zeros(state), step)))
        assert read[-1]["n"] == step
    return read


@behaviour(ranks=True)
def what_is_saved_by_ranks_is_read_by_one(at: Place) -> Any:
    """One rank alone, with no_dist, puts the whole together."""
    at.save(state_of(dist.get_rank()))
    found = None
    if dist.get_rank() == 3:
        target = {"cut": torch.zeros(9, 4), "own0": torch.zeros(3), "n": 0}
        found = plain(at.load(target, no_dist=True))
    dist.barrier()
    return found


# ---- failures ------------------------------------------------------------------------------------

BY_COORDINATOR = ("prepare_global_plan", "create_global_plan", "finish")


def _fails(hook: str, thing: Any, at_rank: int) -> Any:
    return failing(thing, hook) if dist.get_rank() == at_rank else thing


@behaviour(ranks=True, cases=tuple(
    (hook, 0 if hook in BY_COORDINATOR else 2) for hook in SAVE_HOOKS))
def a_save_that_fails_on_one_rank_fails_on_all(at: Place, case: Any) -> Any:
    state = state_of(dist.get_rank())
    found = outcome(lambda: at.save(state, 1, storage_writer=_fails(
        case[0], at.writer(), case[1])))
    assert list(found.kinds) == [case[1]] and "Broken" in found.kinds[case[1]], found
    at.save(state, 2)
    return found, plain(at.load(zeros(state), 2))


@behaviour(ranks=True, cases=tuple(
    (hook, 0 if hook in BY_COORDINATOR else 2) for hook in SAVE_HOOKS))
def a_failure_beside_training_is_all_ranks_futures(at: Place, case: Any) -> Any:
    state = state_of(dist.get_rank())
    answer = at.start(state, 1, storage_writer=_fails(case[0], at.writer(), case[1]))
    found = outcome(lambda: finished(answer))
    assert list(found.kinds) == [case[1]] and "Broken" in found.kinds[case[1]], found
    finished(at.start(state, 2))
    return found, plain(at.load(zeros(state), 2))


@behaviour(ranks=True, cases=tuple(
    (hook, 0 if hook in BY_COORDINATOR else 1) for hook in SAVE_PLANNER_HOOKS))
def a_save_whose_planner_fails_on_one_rank(at: Place, case: Any) -> Any:
    state = state_of(dist.get_rank())
    planner = _fails(case[0], dcp.DefaultSavePlanner(), case[1])
    found = outcome(lambda: at.save(state, 1, planner=planner))
    assert list(found.kinds) == [case[1]], found
    at.save(state, 2)
    return found, plain(at.load(zeros(state), 2))


@behaviour(ranks=True, cases=tuple(
    (hook, 0 if hook in BY_COORDINATOR else 2) for hook in LOAD_HOOKS if hook != "read_metadata"))
def a_load_that_fails_on_one_rank_fails_on_all(at: Place, case: Any) -> Any:
    state = state_of(dist.get_rank())
    at.save(state)
    found = outcome(lambda: at.load(zeros(state), storage_reader=_fails(
        case[0], at.reader(), case[1])))
    assert list(found.kinds) == [case[1]] and "Broken" in found.kinds[case[1]], found
    return found, plain(at.load(zeros(state)))


@behaviour(ranks=True, cases=tuple(
    (hook, 0 if hook in BY_COORDINATOR else 3) for hook in LOAD_PLANNER_HOOKS))
def a_load_whose_planner_fails_on_one_rank(at: Place, case: Any) -> Any:
    state = state_of(dist.get_rank())
    at.save(state)
    planner = _fails(case[0], dcp.DefaultLoadPlanner(), case[1])
    target = {**zeros(state), "n": 0}
    found = outcome(lambda: at.load(target, planner=planner))
    assert list(found.kinds) == [case[1]], found
    return found, plain(at.load(zeros(state)))


@behaviour(ranks=True)
def a_key_that_one_rank_misses_fails_on_all(at: Place) -> Any:
    state = state_of(dist.get_rank())
    at.save(state)
    target: dict[str, Any] = {"same": torch.zeros(5)}
    if dist.get_rank() == 2:
        target["nowhere"] = torch.zeros(1)
    found = outcome(lambda: at.load(target))
    assert list(found.kinds) == [2], found
    return found


# ---- conversions ---------------------------------------------------------------------------------


@behaviour(ranks=True)
def a_file_of_torch_save_is_read_by_rank_0_and_saved_by_all(at: Place) -> Any:
    import os

    from torch.distributed.checkpoint.format_utils import (
        BroadcastingTorchSaveReader,
        DynamicMetaLoadPlanner,
    )

    # one folder for all ranks, that of rank 0
    names = [f"{at.folder}-one.pt"]
    dist.broadcast_object_list(names)
    if dist.get_rank() == 0:
        os.makedirs(os.path.dirname(names[0]), exist_ok=True)
        torch.save({"a": whole(50, 8, 4), "b": whole(51, 5)}, names[0])
    dist.barrier()
    state = {"a": torch.zeros(8, 4), "b": torch.zeros(5)}
    dcp.load(state, storage_reader=BroadcastingTorchSaveReader(), planner=DynamicMetaLoadPlanner(),
             checkpoint_id=names[0])
    state["a"] = distribute_tensor(state["a"], flat(), [Shard(0)])
    at.save(state)
    read = plain(at.load(zeros(state)))
    assert torch.equal(read["a"], whole(50, 8, 4))
    return read
