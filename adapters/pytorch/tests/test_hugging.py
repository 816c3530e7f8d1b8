# SPDX-License-Identifier: Apache-2.0
"""Accelerate and Hugging Face's Trainer with hearth_checkpoint.accelerate and
hearth_checkpoint.transformers. They want
the packages: run_tests --callers installs them."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trained

pytestmark = pytest.mark.skipif(
    None in map(importlib.util.find_spec, ("accelerate", "transformers")),
    reason="accelerate or transformers is not installed: run_tests --callers does")


@pytest.mark.parametrize("kind, step", [
    ("accelerate", 8), ("fsdp", 8), ("between", 6), ("transformers", 8), ("trainer-fsdp", 8),
    ("trainer-full", 8), ("transformers-plateau", 8)])
def test_a_killed_rank_goes_on_from_memory_with_the_controls_losses(folder, kind, step):
    said = trained.killed_and_again(folder, "hugging_work.py", kind)
    for rank in range(2):
        assert f"rank {rank} goes on from {step}" in said, said
    assert any(name.endswith("5") for name in os.listdir(f"{folder}/killed/storage"))
    if kind == "transformers-plateau":
        for name in ("end.0", "end.1"):
            ends = [Path(folder, run, name).read_text() for run in ("control", "killed")]
            assert ends[0] == ends[1] and ends[0].endswith("[4, 8, 12]"), ends


def test_a_rank_that_has_no_room_for_its_model_fails_the_save_and_not_the_training(folder):
    done = trained.train("hugging_work.py", "transformers-full", folder, 12, -1)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        assert f"rank {rank} has 1 failed saves" in done.stdout, done.stdout
        assert len(trained.losses(folder, rank)) == 12


@pytest.mark.parametrize("kind, words", [
    ("DEEPSPEED", "not for DEEPSPEED"), ("MEGATRON_LM", "not for MEGATRON_LM"),
    ("FSDP", "version 2 alone")])
def test_what_is_cut_in_another_way_is_refused_in_words(folder, kind, words):
    from accelerate import DistributedType

    from hearth_checkpoint.accelerate import HearthState

    accelerator = SimpleNamespace(distributed_type=DistributedType[kind], is_fsdp2=False)
    with pytest.raises(TypeError, match=words):
        HearthState(accelerator, f"{folder}/root/job")


@pytest.mark.parametrize("name, words", [
    ("is_deepspeed_enabled", "is_deepspeed_enabled"), ("is_fsdp_xla_enabled", "is_fsdp_xla_enabled"),
    ("is_distributed_loading_by_transformers", "is_distributed_loading_by_transformers"),
    ("is_fsdp_enabled", "version 2 alone")])
def test_a_trainer_that_cuts_in_another_way_is_refused_in_words(folder, name, words):
    from hearth_checkpoint.transformers import HearthCallback

    trainer = SimpleNamespace(accelerator=SimpleNamespace(is_fsdp2=False), **{name: True})
    with pytest.raises(TypeError, match=words):
        HearthCallback(trainer, f"{folder}/root/job", every_n_steps=1)


# ---- one rank ------------------------------------------------------------------------------------


@pytest.fixture
def alone(base, monkeypatch):
    """A job of this process, in which Trainer is not distributed."""
    from accelerate.state import AcceleratorState, PartialState

    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    yield base
    AcceleratorState._reset_state()
    PartialState._reset_state()


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: Any = None) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).square().mean()}


def trainer(folder: str, steps: int, kind: Any = None, **more: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    rows = [{"x": torch.tensor([float(i)])} for i in range(8)]
    return (kind or Trainer)(model=Small(), train_dataset=rows, eval_dataset=rows, args=TrainingArguments(
        output_dir=f"{folder}/storage", max_steps=steps, per_device_train_batch_size=2,
        use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", label_names=["x"], **more))


def test_the_last_step_of_an_epoch_is_saved_with_the_epochs_evaluation(alone, folder):
    from hearth_checkpoint.transformers import HearthCallback

    training = trainer(folder, 6, eval_strategy="epoch", metric_for_best_model="eval_loss")
    HearthCallback(training, alone, every_n_steps=4, on_error="raise")
    training.train()
    second = trainer(folder, 8, eval_strategy="epoch")
    found = HearthCallback(second, alone, every_n_steps=4).newest()
    assert found.endswith("checkpoint-4")
    state = json.loads(Path(found, "trainer_state.json").read_text())
    assert state["best_metric"] is not None and state["log_history"][-1]["step"] == 4
    second.train(resume_from_checkpoint=found)
    assert second.state.global_step == 8


def test_a_batch_that_is_too_large_goes_on_from_memory_again(alone, folder):
    from transformers import Trainer

    from hearth_checkpoint.transformers import HearthCallback

    begun: list[int] = []

    class Once(Trainer):
        def training_step(self, *arguments: Any, **named: Any) -> torch.Tensor:
            begun.append(self.state.global_step)
            if begun == [4, 5, 6]:
                raise RuntimeError("CUDA out of memory.")
            return super().training_step(*arguments, **named)

    first = trainer(folder, 4)
    HearthCallback(first, alone, every_n_steps=4, on_error="raise")
    first.train()
    second = trainer(folder, 8, Once, auto_find_batch_size=True)
    second.train(resume_from_checkpoint=HearthCallback(second, alone, every_n_steps=4).newest())
    assert begun[:4] == [4, 5, 6, 4] and second.state.global_step == 8


def test_a_folder_of_accelerates_is_whole_when_rank_0_has_written_its_last(alone, folder):
    from accelerate import Accelerator

    from hearth_checkpoint.accelerate import HearthState

    accelerator = Accelerator(cpu=True)
    accelerator.prepare(Small())
    accelerator.save_state(f"{folder}/run/step_5")
    os.makedirs(f"{folder}/run/step_9")
    os.rename(f"{folder}/run/step_5/random_states_0.pkl", f"{folder}/run/keep")
    for name in ("step_5/random_states_0.pkl", "step_9/random_states_1.pkl"):
        Path(folder, "run", name).write_bytes(Path(folder, "run", "keep").read_bytes())
    os.remove(f"{folder}/run/keep")
    memory = HearthState(accelerator, alone)
    assert memory.load(f"{folder}/run") == 5
    accelerator.register_for_checkpointing(torch.optim.lr_scheduler.StepLR(
        torch.optim.SGD([torch.zeros(1, requires_grad=True)]), 1))
    assert memory.load(f"{folder}/run") is None  # it ends with that, which is not there
    accelerator.save_state(f"{folder}/run/step_10")
    assert memory.load(f"{folder}/run") == 10
    memory.close()
