# SPDX-License-Identifier: Apache-2.0
"""A training of two ranks under torchrun, killed and started again, beside one that is not."""

from __future__ import annotations

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def train(script: str, *arguments: str | int) -> subprocess.CompletedProcess[str]:
    """One run of tests/<script>."""
    environment = {**os.environ, "HEARTH_LINGER_S": "20", "OMP_NUM_THREADS": "1",
                   "PYTHONFAULTHANDLER": "1",  # where each thread of a rank stood that ends of a signal
                   "PYTHONPATH": os.path.dirname(HERE)}
    for name in ("RANK", "WORLD_SIZE", "HEARTH_ROOT", "HEARTH_JOB"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         f"{HERE}/{script}", *map(str, arguments)],
        env=environment, timeout=240, text=True, capture_output=True, check=False)


def losses(folder: str, rank: int) -> dict[str, str]:
    """The last that was said of each step."""
    with open(f"{folder}/losses.{rank}", encoding="utf-8") as file:
        return dict(line.split() for line in file)


def killed_and_again(folder: str, script: str, *before: str) -> str:
    """The script with its own arguments, FOLDER, 12 steps and the step at which rank 1 is killed:
    the losses are those of a run that was left alone. What the run after the kill said."""
    for name in ("control", "killed"):
        os.makedirs(f"{folder}/{name}")
    control = train(script, *before, f"{folder}/control", 12, -1)
    assert control.returncode == 0, control.stdout + control.stderr
    assert train(script, *before, f"{folder}/killed", 12, 8).returncode != 0
    again = train(script, *before, f"{folder}/killed", 12, -1)
    assert again.returncode == 0, again.stdout + again.stderr
    for rank in range(2):
        assert len(losses(f"{folder}/control", rank)) == 12
        assert losses(f"{folder}/killed", rank) == losses(f"{folder}/control", rank)
    return again.stdout
