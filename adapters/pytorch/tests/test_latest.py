# SPDX-License-Identifier: Apache-2.0
"""load_latest() of parts: of memory, and of what lies on storage in folders or behind keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as torch_dcp
from torch.distributed.checkpoint.api import CheckpointException

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthLost
from hearth_checkpoint.job import Checkpoint
from hearth_checkpoint.torch import dcp

BOTH = ("model", "optimizer")


class App:
    """Stateful."""

    def __init__(self, value: float) -> None:
        self.w, self.n, self.loads = torch.full((4,), value), int(value), 0

    def state_dict(self) -> dict[str, Any]:
        return {"w": self.w, "n": self.n}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n, self.loads = state["n"], self.loads + 1


def states(value: float) -> dict[str, dict[str, Any]]:
    return {"model": {"app": App(value), "b": torch.full((3,), value)},
            "optimizer": {"b": torch.full((2,), -value), "lr": value}}


def values(state: dict[str, dict[str, Any]]) -> list[float]:
    model, optimizer = state["model"], state["optimizer"]
    app = model["app"]
    return [app.w[0].item(), app.n, model["b"][0].item(), -optimizer["b"][0].item(),
            optimizer["lr"]]


def keep(base: str, step: int) -> None:
    for part, state in states(step).items():
        dcp.save(state, checkpoint_id=f"{base}/step-{step}_ckpt/{part}", parts=BOTH)


def on_disk(folder: str, step: int, parts: tuple[str, ...] = BOTH) -> None:
    for part in parts:
        torch_dcp.save(states(step)[part], checkpoint_id=f"{folder}/disk/step-{step}/{part}")


def whole_on_disk(folder: str, step: int) -> None:
    torch_dcp.save({part: {key: value.state_dict() if isinstance(value, App) else value
                           for key, value in state.items()}
                    for part, state in states(step).items()},
                   checkpoint_id=f"{folder}/disk/step-{step}")


def latest(base: str, folder: str, state: dict[str, Any], **arguments: Any) -> int | None:
    return ht.load_latest(state, base=base, fallback=torch_dcp.FileSystemReader(f"{folder}/disk"),
                          **arguments)


def test_a_part_of_memory_under_its_own_names(base, folder):
    keep(base, 4)
    on_disk(folder, 3)
    for part in BOTH:
        state = states(0)
        assert latest(base, folder, state[part], part=part) == 4
        assert values(state) == [4.0 if (part == "model") == (i < 3) else 0.0 for i in range(5)]
        assert state["model"]["app"].loads == (part == "model")


@pytest.mark.parametrize("form", [on_disk, whole_on_disk])
def test_a_part_of_storage_in_a_folder_or_behind_its_key(base, folder, form):
    on_disk(folder, 3)
    form(folder, 5)
    on_disk(folder, 7, ("optimizer",))
    state = states(0)
    assert latest(base, folder, state["model"], part="model") == 5
    assert values(state) == [5.0, 5.0, 5.0, 0.0, 0.0] and state["model"]["app"].loads == 1
    one = torch_dcp.FileSystemReader(f"{folder}/disk/step-3")
    assert ht.load_latest(state["optimizer"], base=base, fallback=one, part="optimizer") == 3
    assert values(state) == [5.0, 5.0, 5.0, 3.0, 3.0]


def test_a_fallback_reader_is_asked_again_where_it_was_first(base, folder):
    one = torch_dcp.FileSystemReader(f"{folder}/disk")
    for step in (3, 5):
        on_disk(folder, step)
        state = states(0)
        assert ht.load_latest(state, base=base, fallback=one, parts=BOTH) == step
        assert values(state) == [float(step)] * 5
    for step in (7, 9):
        whole_on_disk(folder, step)
        state = {part: {"b": value["b"]} for part, value in states(0).items()}
        assert ht.load_latest(state, base=base, fallback=one) == step
        assert state["model"]["b"][0] == step
    with pytest.raises(CheckpointException):  # and a load that failed leaves it there as well
        ht.load_latest({"other": torch.zeros(1)}, base=base, fallback=one)
    assert str(one.path) == f"{folder}/disk"


def test_parts_are_of_one_step_in_memory(base, folder):
    keep(base, 4)
    state = states(0)
    assert latest(base, folder, state, parts=BOTH) == 4
    assert values(state) == [4.0] * 5 and state["model"]["app"].loads == 1


@pytest.mark.parametrize("form", [on_disk, whole_on_disk])
def test_parts_are_of_one_step_on_storage_when_memory_has_lost_one_of_them(
        base, folder, form, monkeypatch):
    keep(base, 9)
    form(folder, 5)
    on_disk(folder, 7, ("model",))  # killed between the two

    def broken(*_: Any) -> None:
        raise HearthLost("made to fail")

    monkeypatch.setattr(Checkpoint, "read_boxes", broken)
    state = states(0)
    assert latest(base, folder, state, parts=BOTH) == 5
    assert values(state) == [5.0] * 5 and state["model"]["app"].loads == 1


def test_a_save_without_the_part_is_no_reason_to_load_an_older_step(base, folder):
    dcp.save({"b": torch.ones(3)}, checkpoint_id=f"{base}/9")
    on_disk(folder, 5)
    state = states(0)["model"]
    with pytest.raises(CheckpointException, match="has no part 'model'"):
        latest(base, folder, state, part="model")
    assert not state["b"].any()


@pytest.mark.parametrize("arguments, error, words", [
    ({"part": "model", "parts": BOTH}, TypeError, "one of the two"),
    ({"parts": ("model",)}, ValueError, "the state has model, optimizer"),
    ({"parts": "model"}, TypeError, "a row of names")])
def test_what_is_asked_for_is_checked(base, folder, arguments, error, words):
    with pytest.raises(error, match=words):
        latest(base, folder, states(0), **arguments)
