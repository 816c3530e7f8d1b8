# SPDX-License-Identifier: Apache-2.0
"""Copies of states that are as the last one was, and of states that are not."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import hearth_checkpoint.torch as ht
from hearth_checkpoint.torch import HearthWriter, _stage


@dataclass
class Own:
    """A value that is pickled."""

    n: int


def state(value: float) -> dict[str, Any]:
    model = OrderedDict(w=torch.full((4, 6), value), b=torch.full((6,), value))
    model._metadata = {"version": value}  # type: ignore[attr-defined]
    tied = torch.full((5,), value)
    return {"model": model, "one": tied, "two": tied, "row": [torch.full((2,), value), int(value)],
            "pair": (1, value), "empty": torch.empty(0, 3), "turned": torch.full((3, 2), value).t(),
            "step": int(value), "text": "x" * int(value), "day": date(2026, 1, int(value) % 9 + 1),
            "wave": torch.full((3,), complex(value, 1.0)), "by": {1: torch.full((3,), value)}}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, DTensor):
        return a.placements == b.placements and same(a._local_tensor, b._local_tensor)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.fixture
def walks(monkeypatch) -> list[int]:
    """An entry for each walk over a state that is not as the last one."""
    out: list[int] = []
    real = _stage._Walk
    monkeypatch.setattr(_stage, "_Walk", lambda shards: out.append(1) or real(shards))
    return out


def staged(writer: HearthWriter, value: dict[str, Any]) -> Any:
    """A copy of a state in memory, read back."""
    def plain(part: Any) -> Any:
        if isinstance(part, DTensor):
            return DTensor.from_local(part._local_tensor.clone(), part.device_mesh,
                                      part.placements, run_check=False)
        if isinstance(part, torch.Tensor):
            return part.clone()
        if isinstance(part, dict):
            return {key: plain(child) for key, child in part.items()}
        return type(part)(map(plain, part)) if isinstance(part, (list, tuple)) else part

    copied = plain(writer.stage(value))
    writer.close()
    return copied


def test_a_state_like_the_last_is_not_walked(base, walks):
    writer = HearthWriter(base)
    for value in (1.0, 2.0, 300000.0):  # other objects at other addresses, and a longer text
        kept = state(value)
        future = ht.async_save(kept, checkpoint_id=f"{base}/{int(value)}", storage_writer=writer)
        for tensor in (kept["model"]["w"], kept["one"], kept["row"][0]):
            tensor.add_(1.0)
        future.result(60)
        target = state(0.0)
        ht.load(target, checkpoint_id=f"{base}/{int(value)}")
        assert same(target, state(value))
    assert len(walks) == 1
    again = writer.stage(state(4.0))
    assert type(again["model"]) is OrderedDict and again["model"]._metadata == {"version": 4.0}
    assert again["one"] is again["two"] and len(walks) == 1
    writer.close()


def changed(name: str) -> dict[str, Any]:
    """A state that differs in one thing from state()."""
    value = state(2.0)
    twin = torch.full((5,), 3.0)
    attributed = torch.full((3,), 2.0)
    attributed.more = 1  # type: ignore[attr-defined]
    more: dict[str, Any] = {
        "a tensor grew": {"by": {1: torch.full((7,), 2.0)}},
        "a shape of as many elements": {"turned": torch.full((3, 2), 2.0)},
        "another dtype": {"by": {1: torch.full((3,), 2, dtype=torch.int32)}},
        "other strides": {"turned": torch.full((2, 3), 2.0)},
        "two that were one": {"two": twin},
        "one that was two": {"by": {1: value["one"]}},
        "a number for a tensor": {"one": 2},
        "a tensor for a number": {"step": torch.ones(2)},
        "an object for a number": {"step": Own(3)},
        "a dict for a number": {"step": {"n": 1}},
        "a number for an object": {"day": 2},
        "a list for an object": {"day": [2]},
        "a tensor for an object": {"day": torch.ones(2)},
        "one key more": {"more": torch.ones(1)},
        "a key that reads alike": {"by": {True: torch.full((3,), 2.0)}},
        "another class of dict": {"model": dict(value["model"])},
        "a tuple for a list": {"row": tuple(value["row"])},
        "fewer elements, the same strides": {"turned": torch.full((3, 2), 2.0).t()[:, :2]},
        "a dict for an object": {"day": {"n": 1}},
        "a list that grew": {"row": [*value["row"], torch.ones(2)]},
        "a tuple with a tensor": {"pair": (1, torch.ones(2))},
        "a parameter": {"by": {1: torch.nn.Parameter(torch.full((3,), 2.0))}},
        "a tensor with attributes": {"by": {1: attributed}},
        "a conjugate": {"wave": value["wave"].conj()},
        "a negative view": {"by": {1: torch._neg_view(torch.full((3,), 2.0))}}}
    if name == "a key less":
        del value["row"]
    elif name == "another order":
        value = dict(reversed(value.items()))
    elif name == "another name":
        value = {("uno" if key == "one" else key): part for key, part in value.items()}
    else:
        value.update(more[name])
    return value


@pytest.mark.parametrize("name", [
    "a tensor grew", "a shape of as many elements", "another dtype", "other strides",
    "two that were one", "one that was two", "a number for a tensor", "a tensor for a number",
    "an object for a number", "a dict for a number", "a number for an object",
    "a list for an object", "a tensor for an object", "one key more", "a key less",
    "a key that reads alike", "another class of dict", "another order", "another name",
    "a tuple for a list", "fewer elements, the same strides", "a dict for an object",
    "a list that grew", "a tuple with a tensor", "a parameter", "a tensor with attributes",
    "a conjugate", "a negative view"])
def test_a_state_that_differs_is_walked(base, walks, name):
    writer, value = HearthWriter(base), changed(name)
    for _ in range(2):
        assert same(staged(writer, state(1.0)), state(1.0))
    assert len(walks) == 1
    copied = staged(writer, value)
    assert same(copied, value)
    assert len(walks) == 2
    assert same(staged(writer, state(5.0)), state(5.0))


def test_a_tensor_that_cannot_be_kept_is_refused_as_ever(base, walks):
    writer = HearthWriter(base)
    staged(writer, {"w": torch.ones(3, 3)})
    for bad in (torch.ones(3, 3, device="meta"), torch.eye(3).to_sparse(),
                torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])):
        current = writer.copy({"w": bad})
        assert current.error is not None and str(current.error).startswith("w: ")
        assert same(staged(writer, {"w": torch.ones(3, 3)}), {"w": torch.ones(3, 3)})


def test_a_save_that_fails_in_between_changes_nothing(base, walks):
    writer = HearthWriter(base)
    ht.async_save(state(1.0), checkpoint_id=f"{base}/1", storage_writer=writer).result(60)

    def fails() -> dict[str, Any]:
        raise ValueError("no state")

    with pytest.raises(BaseException, match="no state"):
        ht.async_save(fails, checkpoint_id=f"{base}/2", storage_writer=writer).result(60)
    ht.async_save(state(3.0), checkpoint_id=f"{base}/3", storage_writer=writer).result(60)
    target = state(0.0)
    ht.load(target, checkpoint_id=f"{base}/3")
    assert same(target, state(3.0)) and len(walks) == 1


class Key:
    """Equal to another of the same number, and fails beside others."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name

    def __eq__(self, other: Any) -> bool:
        return self.number == other.number

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return self.name


@pytest.mark.parametrize(("one", "other"), [
    ((1,), (True,)), (0.0, -0.0), (Key(1, "a"), Key(1, "b")), (Key(1, "a"), "text"),
    (torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2)))])
def test_keys_that_are_no_names_and_numbers_are_walked(base, walks, one, other):
    writer = HearthWriter(base)
    for key in (one, other):
        value = {"by": {key: torch.ones(2)}}
        assert same(staged(writer, value), value)
    assert len(walks) == 2


class Counted:
    """An object that counts how often it is pickled."""

    times = 0

    def __reduce__(self) -> tuple:
        Counted.times += 1
        return Own, (1,)


def test_a_state_that_differs_late_is_copied_once(base, walks):
    writer = HearthWriter(base)
    for length in (1, 2, 3):
        Counted.times = 0
        staged(writer, {"object": Counted(), "grows": torch.ones(length)})
        assert Counted.times == 1
    assert len(walks) == 3


def test_an_object_is_copied_before_the_call_returns(base, walks):
    writer = HearthWriter(base)
    for step in (1, 2):
        value = {"w": torch.ones(2), "own": Own(step)}
        future = ht.async_save(value, checkpoint_id=f"{base}/{step}", storage_writer=writer)
        value["own"].n = 99
        future.result(60)
        target = {"w": torch.zeros(2), "own": Own(0)}
        ht.load(target, checkpoint_id=f"{base}/{step}", trust=True)
        assert target["own"].n == step
    assert len(walks) == 1


def test_a_copy_that_failed_is_its_error_with_a_planner_too(base):
    class Planner(DefaultSavePlanner):
        def set_up_planner(self, state_dict: dict[str, Any], *args: Any, **kw: Any) -> None:
            assert state_dict["model"] is not None
            super().set_up_planner(state_dict, *args, **kw)

    for state_dict, error in (({"model": {"w": torch.ones(2, device="meta")}}, "no bytes"),
                              (lambda: [torch.ones(2)], "must be a dict")):
        with pytest.raises(BaseException, match=error):
            ht.async_save(state_dict, checkpoint_id=f"{base}/1", planner=Planner(),
                          storage_writer=HearthWriter(base)).result(60)


def test_other_placements_are_another_layout(base, walks):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))

        def cut(value: float, placement: Any) -> dict[str, Any]:
            return {"w": DTensor.from_local(torch.full((4, 2), value), mesh, [placement],
                                            run_check=False)}

        writer = HearthWriter(base)
        for value, placement, walked in ((1.0, Shard(0), 1), (2.0, Shard(0), 1),
                                         (3.0, Shard(1), 2), (4.0, Replicate(), 3),
                                         (5.0, Replicate(), 3)):
            assert same(staged(writer, cut(value, placement)), cut(value, placement))
            assert len(walks) == walked
    finally:
        ht.leave(base)
        dist.destroy_process_group()
