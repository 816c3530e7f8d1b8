# SPDX-License-Identifier: Apache-2.0
"""What a load asks for is what DCP's own planner asks for, errors included."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

from hearth_checkpoint.torch._given import LoadPlanner


class Other:
    """An object that DCP does not know."""


class Marked(torch.nn.Parameter):
    """A Parameter of a class of its own."""


def parameter(**attributes: Any) -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.zeros(2, 3))
    made.__dict__.update(attributes)
    return made


def state() -> dict[str, Any]:
    return {"b": torch.rand(2, 3), "a": {"x": torch.rand(4), 1: torch.rand(())},
            "n": 1, "e": torch.rand(0, 3), "l": [1, 2], "t": [torch.rand(2), {"y": torch.rand(1)}],
            "o": collections.OrderedDict(z=torch.rand(1), s="s"), "p": (torch.rand(1), 1)}


def with_other(**more: Any) -> dict[str, Any]:
    return {**state(), **more}


TARGETS = {
    "the same": state,
    "another order": lambda: dict(reversed(state().items())),
    "fewer": lambda: {"b": torch.rand(2, 3)},
    "more": lambda: with_other(more=torch.rand(1)),
    "more inside": lambda: with_other(a={"x": torch.rand(4), 1: torch.rand(()), "q": 1}),
    "another shape": lambda: with_other(b=torch.rand(3, 2)),
    "more dimensions": lambda: with_other(b=torch.rand(2, 3, 1)),
    "another dtype": lambda: with_other(b=torch.zeros(2, 3, dtype=torch.int8)),
    "strides": lambda: with_other(b=torch.rand(3, 2).t()),
    "a number for a tensor": lambda: with_other(b=1),
    "an object for a tensor": lambda: with_other(b=Other()),
    "a tensor for a number": lambda: with_other(n=torch.rand(1)),
    "a parameter": lambda: with_other(b=parameter()),
    "a parameter with an attribute": lambda: with_other(b=parameter(mark=1)),
    "a class of parameters": lambda: with_other(b=Marked(torch.zeros(2, 3))),
    "a meta tensor that is a part": lambda: with_other(
        t=[torch.rand(2), {"y": torch.rand(1)}], o={"z": torch.empty(1), "s": None}),
    "names that read alike": lambda: {"a": {"x": torch.rand(4)}, "a.x": torch.rand(4)},
    "keys that read alike": lambda: {"a": {1: 5, "1": {"x": torch.rand(4)}}},
    "an object": lambda: with_other(n=Other()),
    "an empty dict": lambda: with_other(n={}),
    "a set": lambda: with_other(n={1}),
    "a user's mapping": lambda: with_other(a=collections.UserDict(x=torch.rand(4))),
    "another list": lambda: with_other(l=[[1], [2]]),
    "a list of tensors for numbers": lambda: with_other(l=[torch.rand(1)]),
}


def saved(split: str = "") -> Any:
    planner = DefaultSavePlanner()
    planner.set_up_planner(state(), is_coordinator=True)
    metadata = planner.create_global_plan([planner.create_local_plan()])[1]
    if split:
        entry = metadata.state_dict_metadata["b"]
        entry.chunks[:] = [ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([1, 3])),
                           ChunkStorageMetadata(torch.Size([1, 0]), torch.Size([1, 3]))]
        if split == "part":
            del entry.chunks[1]
    return metadata


def asked(planner: Any, target: dict[str, Any], metadata: Any, given: Any) -> Any:
    try:
        planner.set_up_planner(given, metadata, True)
        items = planner.create_local_plan().items
        found = [planner.resolve_tensor(item) for item in items if item.lengths != (0,)]
    except Exception as error:
        return type(error), str(error).split(" object at ")[0]
    said = [(item.type, item.dest_index, item.dest_index.index, item.dest_offsets,
             item.storage_index, item.storage_index.index, item.storage_offsets, item.lengths)
            for item in items]
    return (said, list(planner.state_dict), planner.mappings, list(target),
            [(part.data_ptr(), part.shape, part.stride()) for part in found])


@pytest.mark.parametrize("split", ["", "whole", "part"])
@pytest.mark.parametrize("name", list(TARGETS))
def test_a_load_asks_for_what_dcp_asks_for(name, split):
    target = TARGETS[name]()
    plain = dict(sorted(target.items()))
    theirs = asked(DefaultLoadPlanner(), target, saved(split), plain)
    ours = LoadPlanner(target)
    list(ours.keyless.items())
    assert asked(ours, target, saved(split), ours.keyless) == theirs


def test_a_tensor_with_numbers_of_its_own_is_asked_for_as_dcp_does():
    whole = torch.rand(1, 3)
    whole.global_shape = (2, 3)
    whole.global_offsets, whole.local_offsets = ((1, 0),), ((0, 0),)
    whole.local_sizes = ((1, 3),)
    target = with_other(b=whole)
    theirs = asked(DefaultLoadPlanner(), target, saved(), dict(sorted(target.items())))
    ours = LoadPlanner(target)
    list(ours.keyless.items())
    assert asked(ours, target, saved(), ours.keyless) == theirs
