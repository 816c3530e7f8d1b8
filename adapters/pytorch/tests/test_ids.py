# SPDX-License-Identifier: Apache-2.0
"""Which save an id means: one folder, one id for a step, one piece for a place."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import proof_work
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs, _rank_local


def save(checkpoint_id: str, value: float = 1.0, **arguments: Any) -> None:
    arguments.setdefault("base", os.path.dirname(checkpoint_id))
    dcp.save({"w": torch.full((4,), float(value))}, checkpoint_id=checkpoint_id,
             storage_writer=HearthWriter(**arguments))


def write(asynchronous: bool, state: dict[str, Any], **arguments: Any) -> None:
    if asynchronous:
        dcp.async_save(state, **arguments).result(60)
    else:
        dcp.save(state, **arguments)


def load(checkpoint_id: str, **arguments: Any) -> float:
    state = {"w": torch.zeros(4)}
    ht.load(state, checkpoint_id=checkpoint_id, storage_reader=HearthReader(**arguments))
    return float(state["w"][0])


# ---- one folder ----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["{base}-old", "{base}/deeper", "/elsewhere", "relative"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_id_in_another_folder_than_the_base_is_refused(base, where, asynchronous):
    """It would be written into the base, under the id's step."""
    name = where.format(base=base)
    writer = HearthWriter(base)
    save(f"{base}/1", 1)
    with pytest.raises(CheckpointException) as caught:
        write(asynchronous, {"w": torch.zeros(4)}, checkpoint_id=f"{name}/2",
              storage_writer=writer)
    text = str(caught.value.failures[0][0])
    assert f"{name}/2" in text and base in text, text
    assert load(f"{base}/1") == 1
    with pytest.raises(CheckpointException) as caught:
        load(f"{name}/1", base=base)
    assert name in str(caught.value) and base in str(caught.value)


def test_a_staged_save_is_written_where_it_was_staged(base, monkeypatch):
    """The environment says the base; DCP tells a stager no id."""
    monkeypatch.setenv("HEARTH_ROOT", os.path.dirname(base))
    monkeypatch.setenv("HEARTH_JOB", os.path.basename(base))
    with pytest.raises(CheckpointException) as caught:
        write(True, {"w": torch.ones(4)}, checkpoint_id=f"{base}-other/1",
              storage_writer=HearthWriter())
    text = str(caught.value.failures[0][0])
    assert base + "'" in text and f"{base}-other'" in text
    assert base in _jobs.open_bases()  # torch 2.9 says the id first, and there is that one's
    write(True, {"w": torch.ones(4)}, checkpoint_id=f"{base}/1", storage_writer=HearthWriter())


def test_ways_to_write_the_same_folder(base, folder, monkeypatch):
    os.symlink(f"{folder}/root", f"{folder}/link")
    for step, name in enumerate((f"{base}//", f"{base}/./x/..", f"{folder}/link/job"), 1):
        save(f"{name}/{step}", step, base=base)
        assert load(f"{base}/{step}", base=f"{base}/") == step
    monkeypatch.chdir(folder)
    save("root/job/4", 4, base=base)
    save("5", 5, base=base)
    assert load("root/job/5") == 5


# ---- one id for a step ---------------------------------------------------------------------------


def test_a_second_id_for_a_step_is_refused_and_told_both(base):
    """As a trainer that saves model and optimizer of one step one after another."""
    one, other = f"{base}/pytorch_model_fsdp_0", f"{base}/optimizer_0"
    save(one, 1, step=0)
    for _ in range(2):
        with pytest.raises(CheckpointException) as caught:
            save(other, 2, step=0)
        text = str(caught.value.failures[0][0])
        assert one in text and other in text and "step 0" in text, text
    assert load(one, step=0) == 1
    save(one, 3, step=0)  # the same again
    assert load(one, step=0) == 3
    save(other, 4, step=1)  # a step of its own
    assert load(other, step=1) == 4


@pytest.mark.parametrize("one, other", [("7", "step-7_ckpt"), ("step-7_ckpt", "007")])
def test_other_spellings_of_a_step_are_other_ids(base, one, other):
    save(f"{base}/{one}")
    with pytest.raises(CheckpointException, match=f"{one}.*{other}|{other}.*{one}"):
        save(f"{base}/{other}")
    save(f"{base}/{one}/", base=base)


def test_the_rank_local_writer_gives_a_step_one_id_too(base):
    state = {"w": torch.ones(2)}
    _rank_local.Writer().write(f"{base}/6", state)
    with pytest.raises(ValueError, match=f"{base}/6.*{base}/step-6_ckpt"):
        _rank_local.Writer().write(f"{base}/step-6_ckpt", state)
    _rank_local.Writer().write(f"{base}/6", state)


def test_the_id_of_a_step_is_known_after_a_restart(base):
    save(f"{base}/model_5", 1, step=5, linger_s=30)
    _jobs.forget(base)
    assert ht.latest(base) == f"{base}/step-5_ckpt"
    with pytest.raises(CheckpointException, match="model_5.*optimizer_5|optimizer_5.*model_5"):
        save(f"{base}/optimizer_5", 2, step=5)
    save(f"{base}/model_5", 3, step=5)
    assert load(f"{base}/model_5", step=5) == 3


def test_a_step_that_was_given_up_leaves_its_id_too(base):
    save(f"{base}/model_1", 1, step=1, keep=3)
    save(f"{base}/model_2", 2, step=2)
    assert ht.recover(base, step=1).step == 1
    save(f"{base}/other_2", 3, step=2)
    assert load(f"{base}/other_2", step=2) == 3
    with pytest.raises(CheckpointException, match="model_1.*other_1"):  # which is still there
        save(f"{base}/other_1", 4, step=1)


def test_a_save_that_failed_leaves_its_step_to_others(base, monkeypatch):
    def broken(*_: Any, **__: Any) -> None:
        raise HearthError("made to fail")

    with monkeypatch.context() as patched:
        patched.setattr(ht.HearthWriter, "finish", broken)
        with pytest.raises(CheckpointException, match="made to fail"):
            save(f"{base}/one", step=3)
    save(f"{base}/other", 2, step=3)
    assert load(f"{base}/other", step=3) == 2


def test_all_ranks_hear_of_a_second_id(two):
    for text in two.run(proof_work.second_id, 4):
        assert "model_4" in text and "optimizer_4" in text, text


# ---- one piece for a place -----------------------------------------------------------------------


class Twice(dcp.DefaultSavePlanner):
    """Writes each item a second time, under the same index."""

    only = ""

    def finish_plan(self, new_plan: Any) -> Any:
        plan = super().finish_plan(new_plan)
        again = [item for item in plan.items if item.index.fqn == self.only]
        return dataclasses.replace(plan, items=plan.items + again)


@pytest.mark.parametrize("key", ["w", "n"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_same_place_twice_in_a_save_is_refused(base, key, asynchronous):
    planner = Twice()
    planner.only = key
    state = {"w": torch.ones(4), "n": 3, "v": torch.zeros(2)}
    with pytest.raises(CheckpointException, match=f"(?s){key}.* twice"):
        write(asynchronous, state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base),
              planner=planner)
    save(f"{base}/2")


def names(base: str, step: int) -> list[bytes]:
    checkpoint = _jobs.membership(base, {}).job.checkpoint(step)
    try:
        return [item.key for item in checkpoint.items() if item.is_tensor]
    finally:
        checkpoint.close()


def test_keys_that_are_cut_or_joined_alike_stay_apart(base):
    """Long names that differ in the middle, and paths whose parts join to the same text."""
    long = ["k" * 600 + part + "k" * 600 for part in "ab"]
    state = {long[0]: torch.ones(2), long[1]: torch.zeros(2), "a.b": torch.ones(3),
             "a": {"b": torch.zeros(3)}, "1": torch.ones(4), 1: torch.zeros(4)}
    _rank_local.Writer().write(f"{base}/1", state)
    assert len(set(names(base, 1))) == 6
    target = {key: None for key in state}
    loaded, _ = _rank_local.Reader().read(f"{base}/1", target)
    assert torch.equal(loaded[long[0]], torch.ones(2)) and torch.equal(loaded[1], torch.zeros(4))
    ones = {name: torch.full((3,), float(i)) for i, name in enumerate(long)}
    dcp.async_save(ones, checkpoint_id=f"{base}/2", storage_writer=HearthWriter(base)).result(60)
    assert len(set(names(base, 2))) == 2


# ---- items of one checkpoint ---------------------------------------------------------------------


def test_an_item_of_another_checkpoint_is_refused(base):
    save(f"{base}/1", 1, keep=2)
    save(f"{base}/2", 2)
    job = _jobs.membership(base, {}).job
    one, other, again = job.checkpoint(1), job.checkpoint(2), job.checkpoint(1)
    item = next(item for item in one.items() if item.key == b"w")
    assert torch.frombuffer(bytearray(one.view(item)), dtype=torch.float32)[0] == 1
    for wrong in (other, again):
        with pytest.raises(HearthError, match="w: .*another checkpoint.*step-1_ckpt"):
            wrong.view(item)
    for checkpoint in (one, other, again):
        checkpoint.close()
