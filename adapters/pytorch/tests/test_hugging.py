# SPDX-License-Identifier: Apache-2.0
"""Accelerate and Hugging Face's Trainer with hearth.accelerate and hearth.transformers. They want
the packages: run_tests --callers installs them."""

from __future__ import annotations

import importlib.util
import os

import pytest
import trained

pytestmark = pytest.mark.skipif(
    None in map(importlib.util.find_spec, ("accelerate", "transformers")),
    reason="accelerate or transformers is not installed: run_tests --callers does")


@pytest.mark.parametrize("kind", ["accelerate", "transformers"])
def test_a_killed_rank_goes_on_from_memory_with_the_controls_losses(folder, kind):
    said = trained.killed_and_again(folder, "hugging_work.py", kind)
    for rank in range(2):
        assert f"rank {rank} goes on from 8" in said, said
    assert any(name.endswith("5") for name in os.listdir(f"{folder}/killed/storage"))
