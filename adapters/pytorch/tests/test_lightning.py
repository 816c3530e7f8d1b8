# SPDX-License-Identifier: Apache-2.0
"""Lightning's trainer with hearth_checkpoint.lightning.
Wants the package: run_tests --callers installs it."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from typing import Any

import pytest
import torch
import trained

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthError

pytestmark = pytest.mark.skipif(importlib.util.find_spec("lightning") is None,
                                reason="lightning is not installed: run_tests --callers does")


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "model-parallel"])
def test_a_killed_rank_goes_on_from_memory_with_the_controls_losses(folder, kind):
    said = trained.killed_and_again(folder, "lightning_work.py", kind)
    for rank in range(2):
        path = f"{folder}/killed/node{rank}/job/step-8_ckpt"
        assert f"rank {rank} goes on from {path}" in said, said
    stored = os.listdir(f"{folder}/killed/storage")
    assert any("step=5" in name for name in stored) and any("step=10" in name for name in stored)
    for rank in range(2):  # the states of other callbacks are of the step that was saved
        assert f"rank {rank} has counted 12" in said, said
    assert [name.rpartition("=")[2] for name in os.listdir(f"{folder}/killed/one")] == ["12.ckpt"]


# ---- the plugin alone ----------------------------------------------------------------------------


def checkpoint(step: int) -> dict[str, Any]:
    return {"global_step": step, "epoch": 0, "state_dict": {"w": torch.full((3,), float(step))},
            "loops": {"fit": [1, (2, 3)]}}


@pytest.mark.parametrize("kind", ["HearthCheckpointIO", "HearthAsyncCheckpointIO"])
def test_paths_below_the_base_are_memory_and_others_storage(base, folder, kind):
    from hearth_checkpoint import lightning

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
    from hearth_checkpoint.lightning import HearthCheckpointIO

    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(HearthError, match="newest"):
        HearthCheckpointIO(base).save_checkpoint(checkpoint(4), f"{base}/4")


def test_lightnings_own_checkpoints_in_memory_are_rank_0s_and_all_go_on_from_them(folder):
    said = trained.killed_and_again(folder, "lightning_work.py", "rank-0")
    for rank in range(2):
        assert f"rank {rank} goes on from {folder}/killed/node{rank}/job/step-8_ckpt" in said, said


def test_the_newer_of_memory_and_storage(base, folder):
    from hearth_checkpoint.lightning import HearthCheckpointIO, newest

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


def test_a_name_says_its_step_among_else_and_a_step_that_nobody_says_is_an_error(base, folder):
    from hearth_checkpoint.lightning import newest

    storage = f"{folder}/storage"
    os.makedirs(storage)
    odd = {**checkpoint(3), "hyper_parameters": {"where": pathlib.PosixPath("/data")}}
    torch.save(odd, f"{storage}/last.ckpt")  # torch reads it where it is trusted
    with pytest.raises(HearthError, match="none of the checkpoints here has its step.*last.ckpt"):
        newest(base, storage)
    assert newest(base, storage, trust=True) == f"{storage}/last.ckpt"
    for name in ("epoch=0-step=3-val_loss=0.25", "epoch=0-step=7-v1", "some_step=9"):
        torch.save(odd, f"{storage}/{name}.ckpt")
    assert newest(base, storage) == f"{storage}/epoch=0-step=7-v1.ckpt"


def test_a_run_to_try_the_code_out_is_not_gone_on_from(base):
    from lightning.pytorch import Trainer
    from lightning.pytorch.demos.boring_classes import BoringModel

    from hearth_checkpoint.lightning import HearthCheckpoint

    for dry, found in ((4, None), (False, f"{base}/step-4_ckpt")):
        Trainer(accelerator="cpu", fast_dev_run=dry, max_steps=4, logger=False,
                enable_progress_bar=False, enable_checkpointing=False, limit_val_batches=0,
                callbacks=[HearthCheckpoint(base, every_n_train_steps=2, on_error="raise")]).fit(
                    BoringModel())
        assert ht.latest(base) == found


def test_a_folder_on_storage_counts_when_it_is_whole(base, folder):
    from hearth_checkpoint.lightning import newest

    for step, whole in ((3, True), (9, False)):  # Lightning writes meta.pt last
        os.makedirs(f"{folder}/storage/epoch=0-step={step}.ckpt")
        if whole:
            torch.save({"global_step": step}, f"{folder}/storage/epoch=0-step={step}.ckpt/meta.pt")
    assert newest(base, f"{folder}/storage") == f"{folder}/storage/epoch=0-step=3.ckpt"


# ---- strategies that cut the state ---------------------------------------------------------------


def set_up(base: str, strategy: Any, **more: Any) -> None:
    """Of the callback, in a trainer that has this strategy and no other part of it."""
    from lightning.pytorch import Trainer

    from hearth_checkpoint.lightning import HearthCheckpoint

    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **more)
    trainer.strategy.__class__ = strategy
    HearthCheckpoint(base, every_n_train_steps=1).setup(trainer, None, "fit")


@pytest.mark.parametrize("theirs, words", [
    ("FSDPStrategy", "use hearth_checkpoint.lightning.HearthFSDPStrategy in its place"),
    ("ModelParallelStrategy",
     "use hearth_checkpoint.lightning.HearthModelParallelStrategy in its place"),
    ("DeepSpeedStrategy",
     "not for DeepSpeedStrategy: save sharded states with hearth_checkpoint.torch")])
def test_a_strategy_that_loads_from_storage_alone_is_refused(base, theirs, words):
    from lightning.pytorch import strategies

    with pytest.raises(TypeError, match=words):
        set_up(base, getattr(strategies, theirs))


@pytest.mark.parametrize("where", [None, "elsewhere"])
def test_a_strategy_finds_memory_by_the_plugin_alone(base, where):
    from hearth_checkpoint.lightning import HearthCheckpointIO, HearthFSDPStrategy

    set_up(base, HearthFSDPStrategy, plugins=[HearthCheckpointIO(base)])
    plugins = [] if where is None else [HearthCheckpointIO(f"{os.path.dirname(base)}/{where}")]
    with pytest.raises(TypeError, match="plugins=.HearthCheckpointIO"):
        set_up(base, HearthFSDPStrategy, plugins=plugins)


def test_a_sharded_checkpoint_of_lightnings_own_is_not_for_memory(base):
    from hearth_checkpoint.lightning import HearthCheckpointIO, HearthModelParallelStrategy

    strategy = HearthModelParallelStrategy()
    strategy.checkpoint_io = HearthCheckpointIO(base)
    with pytest.raises(TypeError, match="the callback HearthCheckpoint"):
        strategy.save_checkpoint(checkpoint(4), f"{base}/4")
