# SPDX-License-Identifier: Apache-2.0
"""Accelerate and Hugging Face's Trainer with hearth.accelerate and hearth.transformers. They want
the packages: run_tests --callers installs them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
pytestmark = pytest.mark.skipif(
    None in map(importlib.util.find_spec, ("accelerate", "transformers")),
    reason="accelerate or transformers is not installed: run_tests --callers does")


def train(kind: str, folder: str, die_at: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HEARTH_LINGER_S": "20", "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.path.dirname(HERE)}
    for name in ("RANK", "WORLD_SIZE", "HEARTH_ROOT", "HEARTH_JOB"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         f"{HERE}/hugging_work.py", kind, folder, "12", str(die_at)],
        env=environment, timeout=240, text=True, capture_output=True, check=False)


def losses(folder: str, rank: int) -> dict[str, str]:
    """The last that was said of each step."""
    with open(f"{folder}/losses.{rank}", encoding="utf-8") as file:
        return dict(line.split() for line in file)


@pytest.mark.parametrize("kind", ["accelerate", "transformers"])
def test_a_killed_rank_goes_on_from_memory_with_the_controls_losses(folder, kind):
    for name in ("control", "killed"):
        os.makedirs(f"{folder}/{name}")
    control = train(kind, f"{folder}/control", -1)
    assert control.returncode == 0, control.stdout + control.stderr
    assert train(kind, f"{folder}/killed", 8).returncode != 0
    again = train(kind, f"{folder}/killed", -1)
    assert again.returncode == 0, again.stdout + again.stderr
    for rank in range(2):
        assert f"rank {rank} goes on from 8" in again.stdout, again.stdout
        assert len(losses(f"{folder}/control", rank)) == 12
        assert losses(f"{folder}/killed", rank) == losses(f"{folder}/control", rank)
    assert any(name.endswith("5") for name in os.listdir(f"{folder}/killed/storage"))
