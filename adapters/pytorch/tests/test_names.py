# SPDX-License-Identifier: Apache-2.0
"""Which step a path names: the forms that trainers write, and what a caller says of the rest."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from hearth_checkpoint.torch import HearthReader, HearthWriter, _names

NAMES = ["step-12_ckpt", "12", "step-12", "step_12", "checkpoint-12", "global_step12",
         "epoch=3-step=12.ckpt", "iter_0000012", "step-012_ckpt"]


def tag(name: str) -> int | None:
    """A caller's own names, as a module's function."""
    return int(name.split("@")[1]) if "@" in name else None


@pytest.mark.parametrize("name", NAMES)
def test_names_that_trainers_give(name):
    assert _names.step_of(name) == 12


@pytest.mark.parametrize("name", [
    "latest", "12_ckpt", "step-12_ckptx", "step-x", "", "step--1", "v12", "epoch=3.ckpt",
    "checkpoint-12/", "iter_", "1" * 20, "step-12\n"])
def test_what_names_no_step(name):
    assert _names.step_of(name) is None


def test_each_form_is_in_the_readme():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(here, "README.md"), encoding="utf-8") as file:
        text = file.read()
    assert [form for form in _names.FORMS if f"`{form}`" not in text] == []


def test_saves_of_all_forms_come_back(base):
    for step, name in enumerate(["global_step1", "checkpoint-2", "epoch=0-step=3.ckpt"], 1):
        dcp.save({"w": torch.full((2,), float(step))}, checkpoint_id=f"{base}/{name}",
                 storage_writer=HearthWriter(base))
        state = {"w": torch.zeros(2)}
        dcp.load(state, checkpoint_id=f"{base}/{name}", storage_reader=HearthReader())
        assert state["w"][0] == step
    with pytest.raises(CheckpointException, match="checkpoint-3.*epoch=0|epoch=0.*checkpoint-3"):
        dcp.save({"w": torch.zeros(2)}, checkpoint_id=f"{base}/checkpoint-3",
                 storage_writer=HearthWriter(base))


def test_the_callers_own_names(base):
    dcp.save({"w": torch.ones(2)}, checkpoint_id=f"{base}/run@7",
             storage_writer=HearthWriter(base, step_of=tag))
    state = {"w": torch.zeros(2)}
    dcp.load(state, checkpoint_id=f"{base}/run@7", storage_reader=HearthReader(step_of=tag))
    assert state["w"][0] == 1
    with pytest.raises(CheckpointException, match="step_of="):
        dcp.save(state, checkpoint_id=f"{base}/run@8", storage_writer=HearthWriter(base))
    with pytest.raises(CheckpointException, match="step is an int"):
        dcp.save(state, checkpoint_id=f"{base}/8",
                 storage_writer=HearthWriter(base, step_of=lambda _: "8"))
