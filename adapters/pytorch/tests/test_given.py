# SPDX-License-Identifier: Apache-2.0
"""States that hearth_checkpoint.torch gives to DCP's planners itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as theirs
from torch.distributed.checkpoint import state_dict_saver

import hearth_checkpoint.torch as ht
import hearth_checkpoint.torch.dcp as dcp


class Counter:
    """A Stateful that counts its calls."""

    def __init__(self, value: float) -> None:
        self.w, self.asked, self.told = torch.full((3,), value), 0, 0

    def state_dict(self) -> dict[str, Any]:
        self.asked += 1
        return {"w": self.w}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.told += 1
        self.w = state["w"].clone()


class Dict(dict):
    """A dict that is Stateful."""

    def state_dict(self) -> dict[str, Any]:
        return {"w": self["w"] + 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self["w"] = state["w"].clone()


def save(state: dict[str, Any], path: str) -> None:
    dcp.save(state, checkpoint_id=path)


def save_beside(state: dict[str, Any], path: str) -> None:
    ht.async_save(state, checkpoint_id=path).result(60)


@pytest.mark.parametrize("how", [save, save_beside])
def test_a_stateful_is_asked_once_and_told_once(base, how):
    kept = {"s": Counter(1.0), "d": Dict(w=torch.zeros(2)), "t": torch.ones(2), "n": 7}
    how(kept, f"{base}/1")
    assert kept["s"].asked == 1
    target = {"s": Counter(0.0), "d": Dict(w=torch.zeros(2)), "t": torch.zeros(2), "n": 0}
    there, tensor = target["s"], target["t"]
    dcp.load(target, checkpoint_id=f"{base}/1")
    assert target["s"] is there and (there.asked, there.told) == (1, 1)
    assert torch.equal(there.w, torch.ones(3)) and torch.equal(target["d"]["w"], torch.ones(2))
    assert target["t"] is tensor and torch.equal(tensor, torch.ones(2)) and target["n"] == 7


def test_a_planner_of_the_users_is_given_the_state(base):
    seen = []

    class Save(theirs.DefaultSavePlanner):
        def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
            seen.append(list(state_dict))
            super().set_up_planner(state_dict, storage_meta, is_coordinator)

    class Load(theirs.DefaultLoadPlanner):
        def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
            seen.append(list(state_dict))
            super().set_up_planner(state_dict, metadata, is_coordinator)

    kept = {"b": torch.ones(2), "a": torch.ones(2)}
    dcp.save(kept, checkpoint_id=f"{base}/1", planner=Save())
    dcp.load(kept, checkpoint_id=f"{base}/1", planner=Load())
    assert seen == [["b", "a"], ["a", "b"]]


@pytest.mark.parametrize("how", [save, save_beside])
def test_dcp_goes_through_no_keys(base, how, monkeypatch):
    """What it does with each costs more than copying a small tensor."""
    seen = []
    real = state_dict_saver._stateful_to_state_dict
    monkeypatch.setattr(state_dict_saver, "_stateful_to_state_dict",
                        lambda state: seen.append(real(state)) or seen[-1])
    how({f"k{i}": torch.ones(2) for i in range(5)}, f"{base}/1")
    assert seen == [{}]
