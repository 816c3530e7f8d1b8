# SPDX-License-Identifier: Apache-2.0
"""Lightning's trainer with hearth.lightning. Wants the package: run_tests --callers installs it."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
import torch
import trained

import hearth.torch as ht
from hearth.errors import HearthError

pytestmark = pytest.mark.skipif(importlib.util.find_spec("lightning") is None,
                                reason="lightning is not installed: run_tests --callers does")


def test_a_killed_rank_goes_on_from_memory_with_the_controls_losses(folder):
    said = trained.killed_and_again(folder, "lightning_work.py")
    for rank in range(2):
        path = f"{folder}/killed/node{rank}/job/step-8_ckpt"
        assert f"rank {rank} goes on from {path}" in said, said
    stored = os.listdir(f"{folder}/killed/storage")
    assert any("step=5" in name for name in stored) and any("step=10" in name for name in stored)


# ---- the plugin alone ----------------------------------------------------------------------------


def checkpoint(step: int) -> dict[str, Any]:
    return {"global_step": step, "epoch": 0, "state_dict": {"w": torch.full((3,), float(step))},
            "loops": {"fit": [1, (2, 3)]}}


@pytest.mark.parametrize("kind", ["HearthCheckpointIO", "HearthAsyncCheckpointIO"])
def test_paths_below_the_base_are_memory_and_others_storage(base, folder, kind):
    from hearth import lightning

    plugin = getattr(lightning, kind)(base)
    for path in (f"{base}/epoch=0-step=4.ckpt", f"{folder}/epoch=0-step=4.ckpt"):
        plugin.save_checkpoint(checkpoint(4), path)
        plugin.teardown()
        back = plugin.load_checkpoint(path)
        assert torch.equal(back["state_dict"]["w"], torch.full((3,), 4.0))
        assert back["loops"] == {"fit": [1, (2, 3)]} and back["global_step"] == 4
    assert os.path.isfile(f"{folder}/epoch=0-step=4.ckpt")
    plugin.remove_checkpoint(f"{folder}/epoch=0-step=4.ckpt")
    plugin.remove_checkpoint(f"{base}/epoch=0-step=4.ckpt")
    assert not os.path.exists(f"{folder}/epoch=0-step=4.ckpt")
    assert ht.latest(base) == f"{base}/step-4_ckpt"


def test_a_save_of_one_rank_wants_a_job_that_all_have_joined(base, monkeypatch):
    from hearth.lightning import HearthCheckpointIO

    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(HearthError, match="newest"):
        HearthCheckpointIO(base).save_checkpoint(checkpoint(4), f"{base}/4")


def test_lightnings_own_checkpoints_in_memory_are_rank_0s_and_all_go_on_from_them(folder):
    said = trained.killed_and_again(folder, "lightning_work.py", "rank-0")
    for rank in range(2):
        assert f"rank {rank} goes on from {folder}/killed/node{rank}/job/step-8_ckpt" in said, said


def test_the_newer_of_memory_and_storage(base, folder):
    from hearth.lightning import HearthCheckpointIO, newest

    storage = f"{folder}/storage"
    plugin = HearthCheckpointIO(base)
    assert newest(base, storage) is None
    plugin.save_checkpoint(checkpoint(3), f"{storage}/epoch=0-step=3.ckpt")
    assert newest(base, storage) == f"{storage}/epoch=0-step=3.ckpt"
    plugin.save_checkpoint(checkpoint(4), f"{base}/4")
    assert newest(base, storage) == f"{base}/step-4_ckpt"
    plugin.save_checkpoint(checkpoint(5), f"{storage}/last.ckpt")  # the file says its step
    with open(f"{storage}/broken.ckpt", "wb") as file:
        file.write(b"?")
    assert newest(base, storage) == f"{storage}/last.ckpt"


def test_a_strategy_that_cuts_the_state_is_refused(base):
    from lightning.pytorch import Trainer
    from lightning.pytorch.strategies import FSDPStrategy

    from hearth.lightning import HearthCheckpoint

    memory = HearthCheckpoint(base, every_n_train_steps=1)
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy.__class__ = FSDPStrategy
    with pytest.raises(TypeError, match="FSDPStrategy"):
        memory.setup(trainer, None, "fit")
