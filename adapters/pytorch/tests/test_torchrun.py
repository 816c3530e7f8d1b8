# SPDX-License-Identifier: Apache-2.0
"""torchrun's store, where ranks meet before there is a process group."""

from __future__ import annotations

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def test_ranks_meet_before_there_is_a_process_group(folder):
    environment = {**os.environ, "HEARTH_LINGER_S": "5", "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.path.dirname(HERE)}
    for name in ("RANK", "WORLD_SIZE", "HEARTH_ROOT", "HEARTH_JOB"):
        environment.pop(name, None)
    said = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         f"{HERE}/early_work.py", folder],
        env=environment, timeout=180, text=True, capture_output=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.count("is done") == 2, said.stdout
