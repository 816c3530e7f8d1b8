# SPDX-License-Identifier: Apache-2.0
"""The plan of a save is used again for a state that is as the one before, and for no other."""

from __future__ import annotations

import collections
import gc
import pickle
import threading
import weakref
from typing import Any

import plan_work
import pytest
import torch
import torch.distributed.checkpoint as theirs
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex, StorageMeta
from torch.distributed.checkpoint.storage import WriteResult

import hearth_checkpoint.torch as ht
import hearth_checkpoint.torch.dcp as dcp
from hearth_checkpoint.torch import _dumped, _jobs, _proof, _write
from hearth_checkpoint.torch._pickles import load_metadata


class Box:
    """An object that DCP makes a byte item of."""


class Map(collections.UserDict):
    """A mapping that DCP looks into."""


def first() -> dict[str, Any]:
    return {"a": torch.rand(3, 4), "b": {"c": torch.rand(2), "d": [torch.rand(1), 1]},
            "n": 1, "s": "text", "l": [1, 2], "t": (1, 2), "o": collections.OrderedDict(x=1)}


def changed(**more: Any) -> dict[str, Any]:
    return {**first(), **more}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in first().items() if name != key}


OTHERS = {
    "key added": lambda: changed(z=torch.rand(2)),
    "key removed": lambda: without("a"),
    "key of the middle removed": lambda: without("n"),
    "order of keys": lambda: dict(reversed(first().items())),
    "order of inner keys": lambda: changed(b={"d": [torch.rand(1), 1], "c": torch.rand(2)}),
    "key of another type": lambda: changed(o=collections.OrderedDict({"1": 1})),
    "dtype": lambda: changed(a=torch.rand(3, 4).half()),
    "shape": lambda: changed(a=torch.rand(4, 3)),
    "dimensions": lambda: changed(a=torch.rand(12)),
    "no elements": lambda: changed(a=torch.rand(0, 4)),
    "strides": lambda: changed(a=torch.rand(4, 3).t()),
    "expanded": lambda: changed(a=torch.rand(4).expand(3, 4)),
    "requires_grad": lambda: changed(a=torch.rand(3, 4, requires_grad=True)),
    "parameter": lambda: changed(a=torch.nn.Parameter(torch.rand(3, 4))),
    "tensor to number": lambda: changed(a=1.0),
    "number to tensor": lambda: changed(n=torch.tensor(1)),
    "number to dict": lambda: changed(n={"x": 1}),
    "number to list of tensors": lambda: changed(n=[torch.rand(1)]),
    "list gets a tensor": lambda: changed(l=[1, torch.rand(2)]),
    "list gets a dict": lambda: changed(l=[1, {"x": 1}]),
    "list gets an object": lambda: changed(l=[1, torch.Size([1])]),
    "list of tensors grows": lambda: changed(b={"c": torch.rand(2),
                                                "d": [torch.rand(1), 1, torch.rand(1)]}),
    "list of numbers grows": lambda: changed(l=[1, 2, 3]),
    "longer text": lambda: changed(s="text" * 100),
    "another number": lambda: changed(n=2),
    "no bytes": lambda: changed(s=b"1"),
    "object": lambda: changed(n=torch.Size([1, 2])),
    "mapping of another class": lambda: changed(n=Map(x=torch.rand(2))),
    "shared tensor": lambda: (lambda one: changed(a=one, b={"c": torch.rand(2), "d": [one, 1]}))(
        torch.rand(1)),
    "nothing": first,
}


def expected(state: dict[str, Any]) -> Any:
    """What DCP plans."""
    planner = DefaultSavePlanner()
    planner.set_up_planner(state, is_coordinator=True)
    return planner.create_global_plan([planner.create_local_plan()])[1]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (dict, collections.UserDict)):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def emptied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype)
    if isinstance(value, (dict, collections.UserDict)):
        return {key: emptied(child) for key, child in value.items()}  # no load fills a UserDict
    if isinstance(value, list):
        return [emptied(child) for child in value]
    return None


def save(writer: ht.HearthWriter, state: dict[str, Any], path: str) -> Any:
    return dcp.save(state, checkpoint_id=path, storage_writer=writer)


def save_beside(writer: ht.HearthWriter, state: dict[str, Any], path: str) -> Any:
    return ht.async_save(state, checkpoint_id=path, storage_writer=writer).result(60)


@pytest.mark.parametrize("how", [save, save_beside])
@pytest.mark.parametrize("name", list(OTHERS))
def test_a_state_that_has_changed_is_saved_as_it_is(base, how, name):
    writer = ht.HearthWriter(base)
    states = [first(), first(), OTHERS[name](), OTHERS[name](), first(), first()]
    for step, state in enumerate(states, 1):
        metadata = how(writer, state, f"{base}/{step}")
        wanted = expected(state)
        assert metadata.planner_data == wanted.planner_data
        assert list(metadata.state_dict_metadata) == list(wanted.state_dict_metadata)
        if how is save:  # a staged copy has other properties
            assert metadata.state_dict_metadata == wanted.state_dict_metadata
        target = emptied(state)
        dcp.load(target, checkpoint_id=f"{base}/{step}")
        assert same(state, target), name


def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of DCP's planner what it does from here on."""
    seen: list[str] = []
    for name in ("create_local_plan", "_create_global_plan"):
        def spy(planner: Any, *args: Any, name: str = name,
                real: Any = getattr(DefaultSavePlanner, name)) -> Any:
            seen.append(name)
            return real(planner, *args)

        monkeypatch.setattr(DefaultSavePlanner, name, spy)
    return seen


@pytest.mark.parametrize("how", [save, save_beside])
def test_the_same_state_is_planned_once(base, how, monkeypatch):
    writer = ht.HearthWriter(base)
    seen = planned(monkeypatch)
    for step in range(1, 5):
        how(writer, first(), f"{base}/{step}")
    assert seen == ["create_local_plan", "_create_global_plan"]
    how(writer, changed(a=torch.rand(1)), f"{base}/5")
    assert len(seen) == 4


def test_a_planner_of_the_users_plans_each_save(base):
    calls = []

    class Planner(theirs.DefaultSavePlanner):
        def create_local_plan(self):
            calls.append("local")
            return super().create_local_plan()

        def create_global_plan(self, all_plans):
            calls.append("global")
            return super().create_global_plan(all_plans)

        def resolve_data(self, write_item):
            calls.append(write_item.index.fqn)
            return super().resolve_data(write_item)

    writer = ht.HearthWriter(base)
    for step in range(1, 4):
        state = {"a": torch.full((2,), float(step))}
        dcp.save(state, checkpoint_id=f"{base}/{2 * step}", storage_writer=writer,
                 planner=Planner())
        dcp.save(state, checkpoint_id=f"{base}/{2 * step + 1}", storage_writer=writer)
    assert calls == ["local", "global", "a"] * 3


def test_a_writer_that_changes_plans_is_given_each_plan_anew(base):
    class Writer(ht.HearthWriter):
        def prepare_global_plan(self, plans):
            plans[0].items.reverse()
            return super().prepare_global_plan(plans)

    writer = Writer(base)
    for step in range(1, 4):
        state = {"a": torch.full((2,), float(step)), "b": torch.full((3,), float(step))}
        save(writer, state, f"{base}/{step}")
        assert writer.plans.planned is None
        target = emptied(state)
        dcp.load(target, checkpoint_id=f"{base}/{step}")
        assert same(state, target)


def test_what_a_caller_does_with_the_metadata_changes_no_later_save(base):
    writer = ht.HearthWriter(base)
    for step in range(1, 4):
        metadata = save(writer, first(), f"{base}/{step}")
        metadata.state_dict_metadata["a"].properties.dtype = torch.float16
        metadata.state_dict_metadata["a"].chunks[0].sizes = torch.Size([1, 2])
        metadata.state_dict_metadata["a"].chunks.clear()
        metadata.state_dict_metadata.pop("n")
        metadata.planner_data.clear()
        target = emptied(first())
        dcp.load(target, checkpoint_id=f"{base}/{step}")
        assert target["n"] == 1 and target["a"].any()


def test_a_plan_that_is_refused_is_refused_again(base, monkeypatch):
    writer = ht.HearthWriter(base)
    with monkeypatch.context() as patch:
        patch.setattr("torch.distributed.checkpoint.default_planner._validate_global_plan",
                      lambda *_: ["wrong"])
        for step in (1, 2):
            with pytest.raises(theirs.CheckpointException, match="wrong"):
                save(writer, first(), f"{base}/{step}")
    save(writer, first(), f"{base}/3")
    save(writer, first(), f"{base}/4")


# ---- `.metadata` ---------------------------------------------------------------------------------


def stored(base: str, step: int) -> bytes:
    checkpoint = _jobs.open_member(base).job.checkpoint(step)
    try:
        return bytes(checkpoint.common(".metadata"))
    finally:
        checkpoint.close()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each `.metadata` of which all was pickled."""
    seen: list[Any] = []
    real = _dumped._head
    monkeypatch.setattr(_dumped, "_head", lambda value: seen.append(value) or real(value))
    return seen


@pytest.mark.parametrize("how", [save, save_beside])
def test_the_metadata_of_a_plan_that_is_the_same_is_pickled_once(base, how, monkeypatch):
    writer, seen = ht.HearthWriter(base), counted(monkeypatch)
    for step in range(1, 5):
        how(writer, first(), f"{base}/{step}")
    assert len(seen) == 1
    how(writer, changed(a=torch.rand(1)), f"{base}/5")
    assert len(seen) == 2


@pytest.mark.parametrize("how", [save, save_beside])
@pytest.mark.parametrize("name", list(OTHERS))
def test_each_save_has_a_metadata_of_its_own(base, how, name):
    """Read by both of Python's unpicklers, and by the library."""
    writer, ids = ht.HearthWriter(base), set()
    states = [first(), first(), OTHERS[name](), OTHERS[name](), first(), first()]
    for step, state in enumerate(states, 1):
        how(writer, state, f"{base}/{step}")
        data = stored(base, step)
        value = pickle.loads(data)
        assert value == pickle._loads(data) == load_metadata(data)
        assert value.storage_meta.checkpoint_id == f"{base}/{step}"
        ids.add(value.storage_meta.save_id)
        assert list(value.state_dict_metadata) == list(expected(state).state_dict_metadata)
        assert len(value.storage_data) == len(value.state_dict_metadata)
        target = emptied(state)
        dcp.load(target, checkpoint_id=f"{base}/{step}")
        assert same(state, target)
    assert len(ids) == len(states)


@pytest.mark.parametrize("how", [save, save_beside])
def test_items_that_lie_elsewhere_are_in_the_metadata(base, how, monkeypatch):
    """The plan is the same, and an item is longer than it was."""
    writer, seen = ht.HearthWriter(base), counted(monkeypatch)
    for step, length in enumerate([1, 1, 90000, 90000, 2, 1], 1):
        state = changed(n="x" * length, z="y" * length)
        how(writer, state, f"{base}/{step}")
        target = emptied(state)
        dcp.load(target, checkpoint_id=f"{base}/{step}")
        assert same(state, target)
    assert len(seen) == 4


class MoreMetadata(theirs.Metadata):
    def __reduce__(self):
        return dict, ([("more", self.storage_meta)],)


@pytest.mark.parametrize("more", [{}, {"mcore_data": {"a": [1, (2,)]}}, {"version": "9"}])
@pytest.mark.parametrize("kind", [theirs.Metadata, MoreMetadata])
def test_a_metadata_reads_the_same_as_if_it_was_pickled_at_once(kind, more):
    value = kind(expected(first()).state_dict_metadata, {"a": ("a",)})
    vars(value).update(more)
    results = [[WriteResult(MetadataIndex("a"), 1, _StorageInfo("x", 0, 1))]]
    value.storage_data = {result.index: result.storage_data for result in results[0]}
    dumped = _dumped.Dumped()
    for text in ("a", "b" * 70000, "\u20ac"):
        value.storage_meta = StorageMeta(checkpoint_id=text, save_id=text * 2, modules=[text])
        data, structure = dumped.of(value, results)
        wanted = pickle.loads(pickle.dumps(value))
        for read in (pickle.loads, pickle._loads):
            assert read(data) == wanted and getattr(read(data), "__dict__", 0) == getattr(
                wanted, "__dict__", 0)
        assert structure == _proof.structure(value)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("how", ["key", "shape", "dtype", "less", "placement", "replicate"])
def test_a_state_that_has_changed_on_one_rank_is_planned_anew(two, how, beside):
    for said in two.run(plan_work.changed, how, beside):
        assert said == [True] * 5


def test_a_rank_with_a_new_writer_plans_anew_and_the_others_do_not(two):
    assert two.run(plan_work.new_writer_on_one_rank) == [1, 2]


LIES = {
    "columns first": lambda: torch.rand(4, 3).t(),
    "expanded": lambda: torch.rand(4).expand(3, 4),
    "every other": lambda: torch.rand(3, 8)[:, ::2],
    "negated": lambda: torch.rand(3, 4, dtype=torch.complex64).conj().imag,
    "a part": lambda: torch.rand(100)[7:19].view(3, 4),
}


@pytest.mark.parametrize("name", list(LIES))
def test_a_tensor_that_lies_otherwise_in_memory_is_saved_as_it_is(base, name):
    writer = ht.HearthWriter(base)
    plain = lambda: torch.rand(3, 4)  # noqa: E731
    for step, make in enumerate([plain, plain, LIES[name], LIES[name], plain, plain], 1):
        state = {"a": make(), "b": torch.rand(2), "n": "x" * step}
        save(writer, state, f"{base}/{step}")
        target = emptied(state)
        dcp.load(target, checkpoint_id=f"{base}/{step}")
        assert same(state, target)


def test_a_save_beside_and_one_that_waits_take_turns(base):
    writer = ht.HearthWriter(base)
    for step in range(1, 9):
        state = changed(a=torch.full((3, 4), float(step)), n=step)
        (save if step % 3 else save_beside)(writer, state, f"{base}/{step}")
        target = emptied(state)
        dcp.load(target, checkpoint_id=f"{base}/{step}")
        assert same(state, target)


def test_tensors_of_a_plan_that_is_the_same_are_described_once(base, monkeypatch):
    from hearth_checkpoint.torch import _stage

    seen = []
    real = _stage.pieces_of
    monkeypatch.setattr(_stage, "pieces_of",
                        lambda *args, **more: seen.append(0) or real(*args, **more))
    writer = ht.HearthWriter(base)
    for step in range(1, 5):
        save(writer, first(), f"{base}/{step}")
    assert len(seen) == 1


def test_places_in_a_copy_that_is_the_same_are_looked_up_once(base, monkeypatch):
    seen = []
    real = _write.Write._staged_results
    monkeypatch.setattr(_write.Write, "_staged_results",
                        lambda *args: seen.append(0) or real(*args))
    writer = ht.HearthWriter(base)
    state = {"a": torch.rand(3, 4), "b": torch.rand(2).half(), "c": torch.rand(5), "n": "text"}
    for step in range(1, 5):
        state["a"] += 1
        save_beside(writer, state, f"{base}/{step}")
        target = emptied(state)
        dcp.load(target, checkpoint_id=f"{base}/{step}")
        assert same(state, target)
    assert len(seen) == 1
    for step, shared in enumerate((False, True, True, False), 5):
        state["c"] = torch.rand(5)
        state["d"] = state["c"] if shared else torch.rand(5)
        save_beside(writer, state, f"{base}/{step}")
        target = emptied(state)
        dcp.load(target, checkpoint_id=f"{base}/{step}")
        assert same(state, target)


def test_saves_of_two_threads_write_each_its_own_state(base, monkeypatch):
    """The second one runs while the first has described its tensors and waits for room."""
    writer, waits, goes = ht.HearthWriter(base), threading.Event(), threading.Event()
    real = _write.Write._make_room

    def slow(*args: Any) -> None:
        real(*args)
        if threading.current_thread().name == "first":
            waits.set()
            assert goes.wait(60)

    monkeypatch.setattr(_write.Write, "_make_room", slow)
    save(writer, {"z": 1}, f"{base}/1")
    states = {step: {"w": torch.full((1000,), float(step))} for step in (2, 3)}
    thread = threading.Thread(name="first", target=save, args=(writer, states[3], f"{base}/3"))
    thread.start()
    assert waits.wait(60)
    with pytest.raises(theirs.CheckpointException):  # step 3 has begun
        save(writer, states[2], f"{base}/2")
    goes.set()
    thread.join(60)
    target = emptied(states[3])
    dcp.load(target, checkpoint_id=f"{base}/3")
    assert same(states[3], target)


def test_a_list_as_deep_as_dcp_allows_is_saved(base):
    deep: list[Any] = [1]
    for _ in range(400):
        deep = [deep]
    writer = ht.HearthWriter(base)
    for step in (1, 2):
        save(writer, {"l": deep, "t": torch.ones(3)}, f"{base}/{step}")


def test_a_save_leaves_nothing_of_its_state_for_the_collector(base):
    writer = ht.HearthWriter(base)
    save(writer, {"a": torch.ones(5)}, f"{base}/1")
    gc.collect()
    gc.disable()
    try:
        tensor = torch.ones(5)
        left = weakref.ref(tensor)
        save(writer, {"a": tensor}, f"{base}/2")
        del tensor
        assert left() is None
    finally:
        gc.enable()


def test_a_save_that_fails_leaves_nothing_that_the_next_one_uses(base, monkeypatch):
    writer = ht.HearthWriter(base)
    for step in (1, 2):
        save(writer, first(), f"{base}/{step}")
    with monkeypatch.context() as patch:
        patch.setattr("hearth_checkpoint.job.Save.add", lambda *_: 1 / 0)
        with pytest.raises(theirs.CheckpointException, match="division"):
            save(writer, first(), f"{base}/3")
    state = first()
    save(writer, state, f"{base}/4")
    target = emptied(state)
    dcp.load(target, checkpoint_id=f"{base}/4")
    assert same(state, target)
