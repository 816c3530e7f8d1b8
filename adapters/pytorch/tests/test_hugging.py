# SPDX-License-Identifier: Apache-2.0
"""Accelerate and Hugging Face's Trainer with hearth.accelerate and hearth.transformers. They want
the packages: run_tests --callers installs them."""

from __future__ import annotations

import importlib.util
import os
from types import SimpleNamespace

import pytest
import trained

pytestmark = pytest.mark.skipif(
    None in map(importlib.util.find_spec, ("accelerate", "transformers")),
    reason="accelerate or transformers is not installed: run_tests --callers does")


@pytest.mark.parametrize("kind, step", [
    ("accelerate", 8), ("fsdp", 8), ("between", 6), ("transformers", 8), ("trainer-fsdp", 8),
    ("trainer-full", 8)])
def test_a_killed_rank_goes_on_from_memory_with_the_controls_losses(folder, kind, step):
    said = trained.killed_and_again(folder, "hugging_work.py", kind)
    for rank in range(2):
        assert f"rank {rank} goes on from {step}" in said, said
    assert any(name.endswith("5") for name in os.listdir(f"{folder}/killed/storage"))


@pytest.mark.parametrize("kind, words", [
    ("DEEPSPEED", "not for DEEPSPEED"), ("MEGATRON_LM", "not for MEGATRON_LM"),
    ("FSDP", "version 2 alone")])
def test_what_is_cut_in_another_way_is_refused_in_words(folder, kind, words):
    from accelerate import DistributedType

    from hearth.accelerate import HearthState

    accelerator = SimpleNamespace(distributed_type=DistributedType[kind], is_fsdp2=False)
    with pytest.raises(TypeError, match=words):
        HearthState(accelerator, f"{folder}/root/job")


@pytest.mark.parametrize("name, words", [
    ("is_deepspeed_enabled", "is_deepspeed_enabled"), ("is_fsdp_xla_enabled", "is_fsdp_xla_enabled"),
    ("is_fsdp_enabled", "version 2 alone")])
def test_a_trainer_that_cuts_in_another_way_is_refused_in_words(folder, name, words):
    from hearth.transformers import HearthCallback

    trainer = SimpleNamespace(accelerator=SimpleNamespace(is_fsdp2=False), **{name: True})
    with pytest.raises(TypeError, match=words):
        HearthCallback(trainer, f"{folder}/root/job", every_n_steps=1)
